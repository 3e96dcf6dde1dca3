// Answers of unary calls: admission first, then one answer from the controller, counted.
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/rpc/admission.h"
#include "coordinator/rpc/messages.h"
#include "coordinator/rpc/probe.h"

namespace penstock::coordinator {

// Finishes one unary call, once. Copyable, so that it travels in callbacks.
class Answer {
 public:
  Answer(grpc::CallbackServerContext* context, RpcProbe& probe, std::string method)
      : reactor_(context->DefaultReactor()),
        probe_(&probe),
        method_(std::move(method)),
        since_(SystemClock().now()) {}

  void finish(const Status& status) const {
    probe_->call_ended(method_, status.code(), SystemClock().now() - since_);
    reactor_->Finish(to_grpc(status));
  }
  grpc::ServerUnaryReactor* reactor() const { return reactor_; }

 private:
  grpc::ServerUnaryReactor* reactor_;
  RpcProbe* probe_;
  std::string method_;
  TimePoint since_;
};

}  // namespace penstock::coordinator
