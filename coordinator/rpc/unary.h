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
      : context_(context),
        reactor_(context->DefaultReactor()),
        probe_(&probe),
        method_(std::move(method)),
        since_(SystemClock().now()) {}

  // Whether the call may be served; when not, it has been finished.
  bool admits(const v1::Caller& caller) {
    StatusOr<std::string> principal = admit(*context_, caller);
    if (principal.ok()) {
      principal_ = *std::move(principal);
      return true;
    }
    finish(principal.status());
    return false;
  }
  const std::string& principal() const { return principal_; }

  void finish(const Status& status) const {
    probe_->call_ended(method_, status.code(), SystemClock().now() - since_);
    reactor_->Finish(to_grpc(status));
  }
  grpc::ServerUnaryReactor* refuse(const Status& status) const {
    finish(status);
    return reactor_;
  }
  grpc::ServerUnaryReactor* reactor() const { return reactor_; }

 private:
  grpc::CallbackServerContext* context_;
  grpc::ServerUnaryReactor* reactor_;
  RpcProbe* probe_;
  std::string method_;
  std::string principal_;
  TimePoint since_;
};

}  // namespace penstock::coordinator
