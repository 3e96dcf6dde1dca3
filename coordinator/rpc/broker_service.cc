#include "coordinator/rpc/broker_service.h"

#include <algorithm>
#include <chrono>

#include "coordinator/rpc/admission.h"
#include "coordinator/rpc/unary.h"
#include "proto/codec/wire.h"

namespace penstock::coordinator {
namespace {

// The answer that names the missing rank must be on its way before the caller's own deadline ends the call.
constexpr Duration kAnswerMargin = 50ms;

StatusOr<CommunicatorKey> admit_key(const grpc::CallbackServerContext& context, const v1::Caller& caller,
                                    const v1::CommunicatorKey& key) {
  PENSTOCK_RETURN_IF_ERROR(admit(context, caller).status());
  return codec::from_proto(key);
}

// A look-up that waits. It ends with the controller's answer, with the caller's leaving, or with the server.
class LookUpCall final : public grpc::ServerUnaryReactor, public ClosableStream {
 public:
  LookUpCall(StreamHouse house, v1::LookUpResponse* response)
      : house_(house), response_(response), since_(SystemClock().now()) {}

  void start(std::shared_ptr<LookUpCall> self, StatusOr<CommunicatorKey> key, Duration timeout) {
    self_ = self;
    if (!key.ok()) return end_stream(key.status());
    if (!house_.streams.add(self)) return end_stream(unavailable("the coordinator is stopping"));
    const WaitId id = house_.controller.look_up(
        *std::move(key), timeout, [self](StatusOr<std::string> value) { self->answered(std::move(value)); });
    bool too_late = false;
    {
      const std::lock_guard lock(mutex_);
      wait_ = id;
      too_late = finished_;
    }
    if (too_late) house_.controller.abandon(id);
  }

  void end_stream(const Status& status) override {
    WaitId waiting = 0;
    {
      const std::lock_guard lock(mutex_);
      waiting = wait_;
      finish_locked(status);
    }
    if (waiting != 0) house_.controller.abandon(waiting);
  }

 private:
  void answered(StatusOr<std::string> value) {
    const std::lock_guard lock(mutex_);
    if (finished_) return;
    if (value.ok()) response_->set_value(*std::move(value));
    finish_locked(value.status());
  }
  void finish_locked(const Status& status) {
    if (std::exchange(finished_, true)) return;
    house_.probe.call_ended("Broker.LookUp", status.code(), SystemClock().now() - since_);
    Finish(to_grpc(status));
  }
  void OnCancel() override { end_stream(cancelled("the caller left, or its deadline passed")); }
  void OnDone() override {
    house_.streams.remove(this);
    const auto last = std::move(self_);
  }

  const StreamHouse house_;
  v1::LookUpResponse* const response_;
  const TimePoint since_;
  std::shared_ptr<LookUpCall> self_;
  std::mutex mutex_;
  bool finished_ = false;
  WaitId wait_ = 0;
};

}  // namespace

grpc::ServerUnaryReactor* BrokerService::Publish(grpc::CallbackServerContext* context,
                                                 const v1::PublishRequest* request, v1::PublishResponse*) {
  Answer answer(context, house_.probe, "Broker.Publish");
  if (!answer.admits(request->caller())) return answer.reactor();
  StatusOr<CommunicatorKey> key = codec::from_proto(request->key());
  if (!key.ok()) return answer.refuse(key.status());
  if (request->value().size() > codec::kLargestBrokerValueBytes)
    return answer.refuse(invalid_argument("value: at most {} bytes expected, found {}",
                                          codec::kLargestBrokerValueBytes, request->value().size()));
  house_.controller.publish(*std::move(key), request->value(),
                            [answer](const Status& status) { answer.finish(status); });
  return answer.reactor();
}

grpc::ServerUnaryReactor* BrokerService::LookUp(grpc::CallbackServerContext* context,
                                                const v1::LookUpRequest* request,
                                                v1::LookUpResponse* response) {
  const Duration left =
      std::chrono::duration_cast<Duration>(context->deadline() - std::chrono::system_clock::now());
  auto call = std::make_shared<LookUpCall>(house_, response);
  LookUpCall* reactor = call.get();
  reactor->start(std::move(call), admit_key(*context, request->caller(), request->key()),
                 std::max<Duration>(left - kAnswerMargin, left / 2));
  return reactor;
}

}  // namespace penstock::coordinator
