// The executor's end of the frame socket to its daemon.
//
// Thread: one reader of its own; send and call from any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "proto/codec/codec.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

class DaemonChannel {
 public:
  // Reads from `fd` at once. `on_end` runs on the reader's thread when the daemon has closed its end or sent
  // bytes that are no frame, with the reason; it should end the process. The fd stays the caller's.
  DaemonChannel(int fd, std::function<void(const Status&)> on_end);
  ~DaemonChannel();
  DaemonChannel(const DaemonChannel&) = delete;
  DaemonChannel& operator=(const DaemonChannel&) = delete;

  // DeadlineExceeded when none comes in time.
  StatusOr<ExecutorAssignment> wait_for_assignment(Duration timeout);

  // Writes the frame whole. Unavailable: the daemon is gone.
  Status send(const codec::ExecutorFrame& frame);

  // Sends a broker request and waits for its answer: the answer's status and value. DeadlineExceeded when the
  // daemon does not answer within `timeout`.
  StatusOr<std::string> call(codec::BrokerPublish request, Duration timeout);
  StatusOr<std::string> call(codec::BrokerLookUp request, Duration timeout);

 private:
  template <typename Request>
  StatusOr<std::string> call_broker(Request request, Duration timeout);
  void read_loop();
  StatusOr<std::string> read_frame();
  Status dispatch(const std::string& bytes);

  int fd_;
  std::function<void(const Status&)> on_end_;
  std::mutex write_mutex_;  // never together with mutex_

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::optional<ExecutorAssignment> assignment_;
  std::map<int64_t, std::optional<codec::BrokerReply>> calls_;  // waited for, by id
  int64_t next_id_ = 1;
  bool closing_ = false;
  std::thread reader_;
};

// The broker of the coordinator, by way of the daemon: keys are those of one communicator of one attempt.
class BrokerRendezvous final : public Rendezvous {
 public:
  BrokerRendezvous(DaemonChannel& channel, AttemptKey attempt, std::string communicator)
      : channel_(channel), attempt_(std::move(attempt)), communicator_(std::move(communicator)) {}

  Status publish(RankIndex rank, const std::string& item, const std::string& value) override;
  StatusOr<std::string> look_up(RankIndex rank, const std::string& item, Duration timeout) override;

 private:
  CommunicatorKey key_of(RankIndex rank, const std::string& item) const;

  DaemonChannel& channel_;
  AttemptKey attempt_;
  std::string communicator_;
};

}  // namespace penstock::worker
