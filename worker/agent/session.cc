#include "worker/agent/session.h"

#include <chrono>
#include <iterator>
#include <utility>

#include "proto/codec/limits.h"
#include "worker/agent/grpc_library.h"

namespace penstock::worker {
namespace {

// Every call needs one. A session that reached it would cost its ranks, so it is longer than a daemon lives, and
// below the 27,000 hours to which gRPC cuts longer ones.
constexpr std::chrono::hours kSessionDeadline{24 * 365 * 3};
constexpr int kKeepaliveMs = 10'000;

grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetMaxReceiveMessageSize(codec::kLargestMessageBytes);
  arguments.SetMaxSendMessageSize(codec::kLargestMessageBytes);
  return arguments;
}

}  // namespace

std::shared_ptr<grpc::Channel> open_channel(const std::string& address) {
  prepare_grpc();
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), channel_arguments());
}

Status to_status(const grpc::Status& status) {
  return Status(static_cast<StatusCode>(status.error_code()), status.error_message());
}

std::shared_ptr<Session> Session::start(v1::Workers::Stub& stub, v1::Register registration, Events events) {
  auto session = std::shared_ptr<Session>(new Session(std::move(events)));
  session->self_ = session;
  session->context_.set_deadline(std::chrono::system_clock::now() + kSessionDeadline);
  stub.async()->Session(&session->context_, session.get());
  session->AddHold();
  session->StartRead(&session->incoming_);
  v1::WorkerMessage first;
  *first.mutable_register_() = std::move(registration);
  session->send(std::move(first));
  session->StartCall();
  return session;
}

bool Session::send(v1::WorkerMessage message) {
  const std::lock_guard lock(mutex_);
  if (closing_ || finishing_ || queue_.size() >= kMostQueued) return false;
  queue_.push_back(std::move(message));
  if (!writing_) write_next_locked();
  return true;
}

void Session::write_next_locked() {
  writing_ = true;
  StartWrite(&queue_.front());
}

void Session::release_locked() {
  if (!std::exchange(released_, true)) RemoveHold();
}

void Session::finish() {
  const std::lock_guard lock(mutex_);
  if (closing_ || std::exchange(finishing_, true)) return;
  if (writing_) return;  // OnWriteDone goes on
  closing_ = true;
  StartWritesDone();
  release_locked();
}

void Session::cancel() {
  context_.TryCancel();
}

void Session::OnReadDone(bool ok) {
  if (ok && events_.received(std::exchange(incoming_, {}))) {
    StartRead(&incoming_);
    return;
  }
  if (ok) context_.TryCancel();  // nobody can take what comes
  const std::lock_guard lock(mutex_);
  closing_ = true;
  if (!writing_) release_locked();
}

void Session::OnWriteDone(bool ok) {
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    writing_ = false;
    if (ok) queue_.pop_front();
    if (!ok) closing_ = true;
    if (closing_) return release_locked();
    if (!queue_.empty()) {
      write_next_locked();
    } else if (finishing_) {
      closing_ = true;
      StartWritesDone();
      release_locked();
    }
    room = queue_.size() == kMostQueued / 2;
  }
  if (room) events_.room();
}

void Session::OnDone(const grpc::Status& status) {
  std::vector<v1::WorkerMessage> unsent(std::make_move_iterator(queue_.begin()),
                                        std::make_move_iterator(queue_.end()));
  const auto ended = events_.ended;  // the session may be gone before the call returns
  ended(std::move(self_), to_status(status), std::move(unsent));
}

}  // namespace penstock::worker
