#include "worker/executor/daemon_channel.h"

#include <pthread.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace penstock::worker {
namespace {

// How much longer than the coordinator's own deadline an answer may take to pass through the daemon.
constexpr Duration kDaemonGrace = 5s;
constexpr Duration kPublishTimeout = 30s;

using LengthPrefix = std::array<unsigned char, 4>;  // little-endian

LengthPrefix prefix_of(size_t bytes) {
  LengthPrefix prefix;
  for (size_t i = 0; i < prefix.size(); ++i) prefix[i] = static_cast<unsigned char>(bytes >> (8 * i));
  return prefix;
}

size_t length_of(const LengthPrefix& prefix) {
  size_t bytes = 0;
  for (size_t i = 0; i < prefix.size(); ++i) bytes |= static_cast<size_t>(prefix[i]) << (8 * i);
  return bytes;
}

Status read_exactly(int fd, void* data, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = recv(fd, static_cast<char*>(data) + done, bytes - done, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unavailable("read from the daemon: {}", std::strerror(errno));
    if (got == 0) return unavailable("the daemon closed its end");
    done += static_cast<size_t>(got);
  }
  return ok_status();
}

Status write_exactly(int fd, const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t sent = ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return unavailable("write to the daemon: {}", std::strerror(errno));
    done += static_cast<size_t>(sent);
  }
  return ok_status();
}

}  // namespace

DaemonChannel::DaemonChannel(int fd, std::function<void(const Status&)> on_end)
    : fd_(fd), on_end_(std::move(on_end)), reader_([this] { read_loop(); }) {}

DaemonChannel::~DaemonChannel() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  shutdown(fd_, SHUT_RD);  // wakes the reader; what we wrote is still delivered
  reader_.join();
}

void DaemonChannel::read_loop() {
  pthread_setname_np(pthread_self(), "daemon-reader");
  for (;;) {
    const StatusOr<std::string> frame = read_frame();
    const Status status = frame.ok() ? dispatch(*frame) : frame.status();
    if (status.ok()) continue;
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
    }
    on_end_(status);
    return;
  }
}

StatusOr<std::string> DaemonChannel::read_frame() {
  LengthPrefix prefix;
  PENSTOCK_RETURN_IF_ERROR(read_exactly(fd_, prefix.data(), prefix.size()));
  const size_t length = length_of(prefix);
  if (length > codec::kLargestFrameBytes) {
    return invalid_argument("the daemon announced a frame of {} bytes; the bound is {}", length,
                            codec::kLargestFrameBytes);
  }
  std::string bytes(length, '\0');
  PENSTOCK_RETURN_IF_ERROR(read_exactly(fd_, bytes.data(), length));
  return bytes;
}

Status DaemonChannel::dispatch(const std::string& bytes) {
  PENSTOCK_ASSIGN_OR_RETURN(codec::DaemonFrame frame, codec::decode_daemon_frame(bytes));
  const std::lock_guard lock(mutex_);
  if (auto* assignment = std::get_if<ExecutorAssignment>(&frame)) {
    if (assignment_) return failed_precondition("the daemon sent a second assignment; an executor takes one");
    assignment_ = std::move(*assignment);
  } else {
    auto& reply = std::get<codec::BrokerReply>(frame);
    const auto call = calls_.find(reply.id);  // one that nobody waits for any more is dropped
    if (call != calls_.end()) call->second = std::move(reply);
  }
  arrived_.notify_all();
  return ok_status();
}

StatusOr<ExecutorAssignment> DaemonChannel::wait_for_assignment(Duration timeout) {
  std::unique_lock lock(mutex_);
  if (!arrived_.wait_for(lock, timeout, [&] { return assignment_.has_value(); })) {
    return deadline_exceeded("no assignment came from the daemon within {} s", to_seconds(timeout));
  }
  return *assignment_;
}

Status DaemonChannel::send(const codec::ExecutorFrame& frame) {
  const std::string payload = codec::encode(frame);
  const LengthPrefix prefix = prefix_of(payload.size());
  std::string bytes(prefix.begin(), prefix.end());
  bytes += payload;
  const std::lock_guard lock(write_mutex_);
  return write_exactly(fd_, bytes);
}

template <typename Request>
StatusOr<std::string> DaemonChannel::call_broker(Request request, Duration timeout) {
  {
    const std::lock_guard lock(mutex_);
    request.id = next_id_++;
    calls_[request.id] = std::nullopt;
  }
  const int64_t id = request.id;
  const Status sent = send(request);
  std::unique_lock lock(mutex_);
  if (sent.ok()) arrived_.wait_for(lock, timeout, [&] { return calls_[id].has_value(); });
  const std::optional<codec::BrokerReply> reply = std::move(calls_[id]);
  calls_.erase(id);
  PENSTOCK_RETURN_IF_ERROR(sent);
  if (!reply) return deadline_exceeded("the daemon did not answer within {} s", to_seconds(timeout));
  PENSTOCK_RETURN_IF_ERROR(reply->status);
  return reply->value;
}

StatusOr<std::string> DaemonChannel::call(codec::BrokerPublish request, Duration timeout) {
  return call_broker(std::move(request), timeout);
}

StatusOr<std::string> DaemonChannel::call(codec::BrokerLookUp request, Duration timeout) {
  return call_broker(std::move(request), timeout);
}

CommunicatorKey BrokerRendezvous::key_of(RankIndex rank, const std::string& item) const {
  return {.attempt = attempt_, .communicator = communicator_, .rank = rank, .item = item};
}

Status BrokerRendezvous::publish(RankIndex rank, const std::string& item, const std::string& value) {
  const Status status =
      channel_.call(codec::BrokerPublish{0, key_of(rank, item), value}, kPublishTimeout).status();
  return with_context(status, fmt::format("publishing \"{}\" of rank {}", item, rank.value));
}

StatusOr<std::string> BrokerRendezvous::look_up(RankIndex rank, const std::string& item, Duration timeout) {
  const int64_t timeout_ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
  auto value = channel_.call(codec::BrokerLookUp{0, key_of(rank, item), timeout_ms}, timeout + kDaemonGrace);
  if (value.ok()) return value;
  return with_context(value.status(), fmt::format("looking up \"{}\" of rank {}", item, rank.value));
}

}  // namespace penstock::worker
