// One life of the stream to the coordinator: registers, then carries messages both ways until it ends.
//
// Thread: send, finish and cancel from any thread. Events come on gRPC's threads and only post: they must not
// block. Ordering: messages are written in the order of send. Bounds: kMostQueued messages wait to be
// written.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"
#include "penstock/v1/workers.grpc.pb.h"

namespace penstock::worker {

class Session final : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  static constexpr size_t kMostQueued = 256;

  struct Events {
    // False: nobody can take it, and the session ends.
    std::function<bool(v1::CoordinatorMessage)> received;
    std::function<void()> room;  // the queue has become short again
    // Last event. `session` must be let go on a thread that is not gRPC's: it may hold the last reference to
    // the channel, whose end waits for gRPC's threads. `unsent`: messages that were never written.
    std::function<void(std::shared_ptr<Session> session, Status status,
                       std::vector<v1::WorkerMessage> unsent)>
        ended;
  };

  // Starts the call and sends `registration` first. The session keeps itself alive until `ended`.
  static std::shared_ptr<Session> start(v1::Workers::Stub& stub, v1::Register registration, Events events);

  // False: the queue is full or the session is ending; the message was not taken.
  bool send(v1::WorkerMessage message);
  // Ends the stream once all that was sent is written.
  void finish();
  // Ends it at once.
  void cancel();

 private:
  explicit Session(Events events) : events_(std::move(events)) {}
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;
  void write_next_locked();
  void release_locked();

  const Events events_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  std::shared_ptr<Session> self_;  // handed on by OnDone

  std::mutex mutex_;
  std::deque<v1::WorkerMessage> queue_;  // its front is being written while writing_
  bool writing_ = false;
  bool closing_ = false;    // nothing is taken or written any more
  bool finishing_ = false;  // nothing is taken any more; the queue is still written
  bool released_ = false;   // the hold that keeps the call open for our sends
};

// The channel to a coordinator, for its session and its broker calls. Connects when first used, again whenever it is
// lost, at most once a second.
std::shared_ptr<grpc::Channel> open_channel(const std::string& address);
Status to_status(const grpc::Status& status);

}  // namespace penstock::worker
