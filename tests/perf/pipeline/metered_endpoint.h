// An endpoint that counts the CPU time that the process burns, with all of its threads, while its caller is in wait(),
// and that the caller itself burns in post_send().
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "worker/transport/endpoint.h"

namespace penstock::perf {

inline Duration process_cpu_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

struct Meter {
  Duration cpu_in_waits{};
  Duration cpu_in_posts{};  // of the thread that posts
};

class MeteredEndpoint final : public worker::Endpoint {
 public:
  MeteredEndpoint(std::unique_ptr<worker::Endpoint> inner, Meter& meter)
      : inner_(std::move(inner)), meter_(&meter) {}

  StatusOr<std::shared_ptr<void>> receive_memory(int64_t bytes) override {
    return inner_->receive_memory(bytes);
  }
  Status open(const worker::Group& group, worker::Rendezvous& rendezvous, Duration timeout) override {
    return inner_->open(group, rendezvous, timeout);
  }
  StatusOr<worker::TransferId> post_send(RankIndex target, const void* data, int64_t bytes) override {
    const Duration start = thread_cpu_time();
    auto transfer = inner_->post_send(target, data, bytes);
    meter_->cpu_in_posts += thread_cpu_time() - start;
    return transfer;
  }
  StatusOr<worker::TransferId> post_receive(RankIndex source, void* data, int64_t bytes) override {
    return inner_->post_receive(source, data, bytes);
  }
  Status wait(worker::TransferId id) override {
    const Duration start = process_cpu_time();
    Status status = inner_->wait(id);
    meter_->cpu_in_waits += process_cpu_time() - start;
    return status;
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  Status drain() override { return inner_->drain(); }

 private:
  std::unique_ptr<worker::Endpoint> inner_;
  Meter* meter_;
};

// `meter` outlives it.
inline std::unique_ptr<worker::Endpoint> metered(std::unique_ptr<worker::Endpoint> endpoint, Meter& meter) {
  return std::make_unique<MeteredEndpoint>(std::move(endpoint), meter);
}

}  // namespace penstock::perf
