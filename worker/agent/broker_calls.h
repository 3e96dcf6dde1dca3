// Hands executors' broker calls on to the coordinator's Broker service, each with a deadline.
//
// Thread: start and cancel from the agent's thread; answers come on gRPC's threads and only post.
// Bounds: kMostPending calls at once; beyond that a call is answered with ResourceExhausted at once.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "penstock/v1/broker.grpc.pb.h"
#include "proto/codec/codec.h"

namespace penstock::worker {

class BrokerCalls {
 public:
  static constexpr size_t kMostPending = 4096;
  static constexpr int64_t kPublishTimeoutMs = 10'000;
  static constexpr int64_t kLongestLookUpMs = 3'600'000;

  using Call = std::variant<codec::BrokerPublish, codec::BrokerLookUp>;
  // Names an executor over its life; never used twice.
  using Executor = int64_t;
  using Answer = std::function<void(Executor, codec::BrokerReply)>;

  BrokerCalls(std::shared_ptr<grpc::Channel> channel, std::string principal, Answer answer);
  // Cancels what is pending and waits for the last answer.
  ~BrokerCalls();

  void start(Executor executor, const Call& call);
  // Ends the executor's pending calls, whose answers nobody waits for any more.
  void cancel(Executor executor);

 private:
  struct Pending;
  void publish(Pending& pending, const codec::BrokerPublish& call);
  void look_up(Pending& pending, const codec::BrokerLookUp& call);
  void cancel_if(const std::function<bool(const Pending&)>& chosen);
  void finished(Pending& pending, const grpc::Status& status);

  const std::unique_ptr<v1::Broker::Stub> stub_;
  const std::string principal_;
  const Answer answer_;

  std::mutex mutex_;
  std::condition_variable none_pending_;
  std::map<int64_t, std::shared_ptr<Pending>> pending_;
  // Answered ones, let go by the agent's thread: a call may hold the last reference to the channel, whose end
  // waits for gRPC's threads.
  std::vector<std::shared_ptr<Pending>> answered_;
  int64_t next_ = 0;
};

}  // namespace penstock::worker
