// One worker daemon's stream: registers it with the controller, hands on what it says, writes what it is
// told.
//
// Thread: any. At most one message of the worker waits in the controller; the next is read when that one is
// taken. Bounds: kMostQueued messages wait to be written; beyond that the worker is taken for lost; a stream
// that has not registered within `register_within` ends.
//
// A worker that leaves says Draining before it closes its side. A stream that ends without it ends with
// InvalidArgument: gRPC tells bytes that are no message and a half-close alike.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "coordinator/controller/controller.h"
#include "coordinator/rpc/open_streams.h"
#include "coordinator/rpc/pull_stream.h"
#include "penstock/v1/workers.pb.h"

namespace penstock::coordinator {

class WorkerSession final : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
                            public WorkerSink,
                            public ClosableStream,
                            public std::enable_shared_from_this<WorkerSession> {
 public:
  static constexpr size_t kMostQueued = 1024;

  WorkerSession(StreamHouse house, const grpc::CallbackServerContext* context, Duration register_within)
      : house_(house), context_(context), register_within_(register_within) {}
  // The stream keeps itself alive until OnDone.
  void start();

  bool send(CoordinatorMessage message) override;
  void close(Status status) override;
  void end_stream(const Status& status) override { close(status); }

 private:
  enum class Queued { Write, Drop };
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void limit_silence();
  void take_first(const v1::WorkerMessage& message);
  void take_next(const v1::WorkerMessage& message);
  void read_next();
  void end(Status status, Queued queued);
  void finish_locked();
  void leave(const std::string& reason);

  const StreamHouse house_;
  const grpc::CallbackServerContext* const context_;
  const Duration register_within_;
  grpc::Alarm silence_;
  std::shared_ptr<WorkerSession> self_;  // dropped by OnDone
  v1::WorkerMessage incoming_;

  std::mutex mutex_;
  SessionId session_ = 0;                     // 0: not registered
  bool draining_ = false;                     // it said that it leaves
  bool left_ = false;                         // the controller knows that it is over
  std::deque<v1::CoordinatorMessage> queue_;  // its front is being written while writing_
  bool writing_ = false;
  bool ending_ = false;  // nothing is taken any more; Finish follows what is queued
  bool finished_ = false;
  Status status_;
};

}  // namespace penstock::coordinator
