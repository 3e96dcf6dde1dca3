#include "coordinator/rpc/worker_session.h"

#include <chrono>
#include <utility>
#include <variant>

#include "coordinator/rpc/admission.h"
#include "coordinator/rpc/messages.h"
#include "proto/codec/wire.h"

namespace penstock::coordinator {
namespace {

constexpr const char* kMethod = "Workers.Session";

}  // namespace

void WorkerSession::start() {
  self_ = shared_from_this();
  house_.probe.stream_opened(kMethod);
  if (!house_.streams.add(self_)) return close(unavailable("the coordinator is stopping"));
  limit_silence();
  read_next();
}

// --- from the worker ---

void WorkerSession::read_next() {
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  incoming_.Clear();
  StartRead(&incoming_);
}

void WorkerSession::limit_silence() {
  // Weak: an alarm that held its session would keep both for ever.
  silence_.Set(std::chrono::system_clock::now() + register_within_, [weak = weak_from_this()](bool expired) {
    const std::shared_ptr<WorkerSession> self = weak.lock();
    if (!expired || !self) return;
    {
      const std::lock_guard lock(self->mutex_);
      if (self->session_ != 0 || self->ending_) return;
    }
    self->end(deadline_exceeded("Register: expected within {:g} s of the stream's start",
                                to_seconds(self->register_within_)),
              Queued::Drop);
  });
}

void WorkerSession::OnReadDone(bool ok) {
  bool first = false;
  if (!ok) {
    leave("its stream closed");
    bool told = false;
    {
      const std::lock_guard lock(mutex_);
      told = draining_;
    }
    return end(told
                   ? ok_status()
                   : invalid_argument("the stream ended without Draining, or with bytes that are no message"),
               Queued::Write);
  }
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    first = session_ == 0;
  }
  first ? take_first(incoming_) : take_next(incoming_);
}

void WorkerSession::take_first(const v1::WorkerMessage& message) {
  if (!message.has_register_())
    return end(invalid_argument("the first message must be Register"), Queued::Drop);
  StatusOr<std::string> principal = admit(*context_, message.register_().caller());
  if (!principal.ok()) return end(principal.status(), Queued::Drop);
  StatusOr<Registration> registration = codec::from_proto(message.register_());
  if (!registration.ok()) return end(registration.status(), Queued::Drop);
  const SessionId session = house_.controller.open_session(*std::move(registration), shared_from_this());
  {
    const std::lock_guard lock(mutex_);
    session_ = session;
  }
  read_next();
}

void WorkerSession::take_next(const v1::WorkerMessage& message) {
  StatusOr<WorkerMessage> decoded = from_proto(message);
  if (!decoded.ok()) {
    leave(fmt::format("it sent a malformed message: {}", penstock::message(decoded.status())));
    return end(decoded.status(), Queued::Drop);
  }
  if (std::holds_alternative<Draining>(*decoded)) {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  house_.controller.deliver(session_, *std::move(decoded),
                            [self = shared_from_this()] { self->read_next(); });
}

void WorkerSession::leave(const std::string& reason) {
  SessionId session = 0;
  {
    const std::lock_guard lock(mutex_);
    if (session_ == 0 || left_) return;
    left_ = true;
    session = session_;
  }
  house_.controller.close_session(session, reason);
}

// --- to the worker ---

bool WorkerSession::send(CoordinatorMessage message) {
  v1::CoordinatorMessage encoded = to_proto(message);  // may be long: outside of the lock
  const std::lock_guard lock(mutex_);
  if (ending_ || queue_.size() >= kMostQueued) return false;
  queue_.push_back(std::move(encoded));
  if (!writing_) {
    writing_ = true;
    StartWrite(&queue_.front());
  }
  return true;
}

void WorkerSession::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  queue_.pop_front();
  if (!ok) queue_.clear();
  if (!queue_.empty()) {
    writing_ = true;
    StartWrite(&queue_.front());
  } else if (ending_) {
    finish_locked();
  }
}

// --- the end ---

void WorkerSession::close(Status status) {
  end(std::move(status), Queued::Write);
}

void WorkerSession::end(Status status, Queued queued) {
  const std::lock_guard lock(mutex_);
  if (queued == Queued::Drop && !queue_.empty()) queue_.resize(writing_ ? 1 : 0);
  if (!std::exchange(ending_, true)) status_ = std::move(status);
  if (!writing_) finish_locked();
}

void WorkerSession::finish_locked() {
  if (!std::exchange(finished_, true)) Finish(to_grpc(status_));
}

void WorkerSession::OnCancel() {
  leave("its stream broke");
  end(cancelled("the worker left, or the session's deadline passed"), Queued::Drop);
}

void WorkerSession::OnDone() {
  leave("its stream ended");
  house_.streams.remove(this);
  house_.probe.stream_ended(kMethod, status_.code());
  const auto last = std::move(self_);
}

}  // namespace penstock::coordinator
