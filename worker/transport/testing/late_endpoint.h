// An endpoint whose peers are lost after `posts` posted transfers, and which keeps to the letter of the
// contract: every wait fails, and the memory of a receive is the transport's until its wait has returned.
//
// deliver_late() writes into all of that memory, as a message does that was under way when its peer was lost:
// into freed memory when somebody forgot to wait. For tests. Thread: one.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "worker/transport/endpoint.h"

namespace penstock::worker {

class LateEndpoint final : public Endpoint {
 public:
  explicit LateEndpoint(int posts) : posts_left_(posts) {}

  Status open(const Group&, Rendezvous&, Duration) override { return ok_status(); }
  StatusOr<TransferId> post_send(RankIndex, const void*, int64_t) override { return post({}); }
  StatusOr<TransferId> post_receive(RankIndex, void* data, int64_t bytes) override {
    return post({data, bytes});
  }
  Status wait(TransferId id) override {
    if (posted_.erase(id.value) == 0) return invalid_argument("transfer {} is unknown", id.value);
    return lost();
  }
  void abort(const std::string& reason) override { abort_reason_ = reason; }
  Status drain() override { return lost(); }

  // Transfers whose memory is still the transport's.
  size_t held() const { return posted_.size(); }
  const std::string& abort_reason() const { return abort_reason_; }

  void deliver_late() {
    for (const auto& [id, memory] : posted_) {
      if (memory.second > 0) std::memset(memory.first, 0x5a, static_cast<size_t>(memory.second));
    }
  }

 private:
  using Memory = std::pair<void*, int64_t>;

  static Status lost() { return aborted("rank 1 was lost"); }
  StatusOr<TransferId> post(Memory memory) {
    if (posts_left_-- <= 0) return lost();
    posted_[next_id_] = memory;
    return TransferId{next_id_++};
  }

  int posts_left_;
  int64_t next_id_ = 0;
  std::map<int64_t, Memory> posted_;
  std::string abort_reason_;
};

}  // namespace penstock::worker
