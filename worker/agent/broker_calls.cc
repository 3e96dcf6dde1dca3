#include "worker/agent/broker_calls.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "proto/codec/wire.h"
#include "worker/agent/session.h"

namespace penstock::worker {

struct BrokerCalls::Pending {
  int64_t number = 0;
  Executor executor = 0;
  int64_t id = 0;  // the executor's
  grpc::ClientContext context;
  v1::PublishRequest publish;
  v1::PublishResponse published;
  v1::LookUpRequest look_up;
  v1::LookUpResponse found;

  void set_timeout(int64_t milliseconds) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(milliseconds));
  }
};

BrokerCalls::BrokerCalls(std::shared_ptr<grpc::Channel> channel, std::string principal, Answer answer)
    : stub_(v1::Broker::NewStub(std::move(channel))),
      principal_(std::move(principal)),
      answer_(std::move(answer)) {}

BrokerCalls::~BrokerCalls() {
  cancel_if([](const Pending&) { return true; });
  std::unique_lock lock(mutex_);
  none_pending_.wait(lock, [this] { return pending_.empty(); });
}

void BrokerCalls::start(Executor executor, const Call& call) {
  auto pending = std::make_shared<Pending>();
  pending->executor = executor;
  pending->id = std::visit([](const auto& c) { return c.id; }, call);
  std::vector<std::shared_ptr<Pending>> answered;
  {
    const std::lock_guard lock(mutex_);
    answered.swap(answered_);
    if (pending_.size() < kMostPending) {
      pending->number = ++next_;
      pending_.emplace(pending->number, pending);
    }
  }
  if (pending->number == 0) {
    answer_(executor, codec::BrokerReply{
                          pending->id, resource_exhausted("{} broker calls are pending", kMostPending), ""});
    return;
  }
  if (const auto* publishing = std::get_if<codec::BrokerPublish>(&call)) publish(*pending, *publishing);
  if (const auto* looking_up = std::get_if<codec::BrokerLookUp>(&call)) look_up(*pending, *looking_up);
}

void BrokerCalls::publish(Pending& pending, const codec::BrokerPublish& call) {
  pending.set_timeout(kPublishTimeoutMs);
  pending.publish.mutable_caller()->set_principal(principal_);
  *pending.publish.mutable_key() = codec::to_proto(call.key);
  pending.publish.set_value(call.value);
  stub_->async()->Publish(&pending.context, &pending.publish, &pending.published,
                          [this, &pending](const grpc::Status& status) { finished(pending, status); });
}

void BrokerCalls::look_up(Pending& pending, const codec::BrokerLookUp& call) {
  pending.set_timeout(std::clamp<int64_t>(call.timeout_ms, 1, kLongestLookUpMs));
  pending.look_up.mutable_caller()->set_principal(principal_);
  *pending.look_up.mutable_key() = codec::to_proto(call.key);
  stub_->async()->LookUp(&pending.context, &pending.look_up, &pending.found,
                         [this, &pending](const grpc::Status& status) { finished(pending, status); });
}

void BrokerCalls::finished(Pending& pending, const grpc::Status& status) {
  answer_(pending.executor,
          codec::BrokerReply{pending.id, to_status(status), std::move(*pending.found.mutable_value())});
  const std::lock_guard lock(mutex_);
  const auto place = pending_.find(pending.number);
  answered_.push_back(std::move(place->second));
  pending_.erase(place);
  if (pending_.empty()) none_pending_.notify_all();
}

void BrokerCalls::cancel(Executor executor) {
  cancel_if([executor](const Pending& pending) { return pending.executor == executor; });
}

// Outside of the lock: an answer may come on this thread.
void BrokerCalls::cancel_if(const std::function<bool(const Pending&)>& chosen) {
  std::vector<std::shared_ptr<Pending>> ending;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, pending] : pending_) {
      if (chosen(*pending)) ending.push_back(pending);
    }
  }
  for (const auto& pending : ending) pending->context.TryCancel();
}

}  // namespace penstock::worker
