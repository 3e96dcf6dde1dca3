// A stream of answers that are pulled from the controller: ask, write what came, ask for what comes after it.
// So a slow reader never makes anything queue: it gets the newest state when it is ready for one.
//
// Thread: any. The reactor lives until OnDone and until the last answer has come, whichever is later.
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/status.h"
#include "coordinator/controller/controller.h"
#include "coordinator/rpc/messages.h"
#include "coordinator/rpc/open_streams.h"
#include "coordinator/rpc/probe.h"

namespace penstock::coordinator {

// What the streams share.
struct StreamHouse {
  Controller& controller;
  OpenStreams& streams;
  RpcProbe& probe;
};

template <typename Message, typename Answer>
class PullStream : public grpc::ServerWriteReactor<Message>,
                   public ClosableStream,
                   public std::enable_shared_from_this<PullStream<Message, Answer>> {
 public:
  PullStream(StreamHouse house, std::string method) : house_(house), method_(std::move(method)) {}

  // `admitted`: whether the call may be served at all.
  void start(std::shared_ptr<PullStream> self, const Status& admitted) {
    self_ = self;
    house_.probe.stream_opened(method_);
    if (!admitted.ok()) return end_stream(admitted);
    if (!house_.streams.add(self)) return end_stream(unavailable("the coordinator is stopping"));
    ask_next();
  }

  void end_stream(const Status& status) override {
    WaitId waiting = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
      ending_ = true;
      status_ = status;
      waiting = wait_;
      if (!writing_) finish_locked();
    }
    if (waiting != 0) house_.controller.abandon(waiting);
  }

 protected:
  // Asks the controller for what comes next.
  virtual WaitId ask(Controller& controller, std::function<void(StatusOr<Answer>)> done) = 0;
  // The messages of an answer, and whether it was the last.
  virtual bool take(Answer answer, std::deque<Message>& messages) = 0;

 private:
  void ask_next() {
    int64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
      number = ++asked_;
    }
    // Of the object and not of self_, which OnDone may be dropping on another thread.
    const WaitId id = ask(house_.controller, [self = this->shared_from_this()](StatusOr<Answer> answer) {
      self->answered(std::move(answer));
    });
    bool too_late = false;
    {
      const std::lock_guard lock(mutex_);
      too_late = ending_;
      if (number == asked_) wait_ = id;
    }
    if (too_late) house_.controller.abandon(id);
  }

  void answered(StatusOr<Answer> answer) {
    if (!answer.ok()) return end_stream(answer.status());
    bool ask_again = false;
    {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
      last_ = take(*std::move(answer), messages_);
      ask_again = !write_or_end_locked();
    }
    if (ask_again) ask_next();
  }

  // False: everything is written and more is to be asked for.
  bool write_or_end_locked() {
    if (!messages_.empty()) {
      writing_ = true;
      this->StartWrite(&messages_.front());
      return true;
    }
    if (!last_) return false;
    ending_ = true;
    finish_locked();
    return true;
  }

  void finish_locked() { this->Finish(to_grpc(status_)); }

  void OnWriteDone(bool ok) override {
    bool ask_again = false;
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      messages_.pop_front();
      if (!ok && !ending_) {
        ending_ = true;
        status_ = cancelled("the reader left");
      }
      if (ending_) return finish_locked();
      ask_again = !write_or_end_locked();
    }
    if (ask_again) ask_next();
  }

  void OnCancel() override { end_stream(cancelled("the reader left, or its deadline passed")); }

  void OnDone() override {
    house_.streams.remove(this);
    house_.probe.stream_ended(method_, status_.code());
    const auto last = std::move(self_);
  }

  const StreamHouse house_;
  const std::string method_;
  std::shared_ptr<PullStream> self_;  // set by start, dropped by OnDone, and used by nobody else

  std::mutex mutex_;
  std::deque<Message> messages_;  // its front is being written while writing_
  bool writing_ = false;
  bool last_ = false;    // nothing follows messages_
  bool ending_ = false;  // Finish was called, or is when the write in flight ends
  Status status_;
  int64_t asked_ = 0;
  WaitId wait_ = 0;  // of the newest ask
};

}  // namespace penstock::coordinator
