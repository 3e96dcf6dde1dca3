#include "worker/transport/gloo/endpoint.h"

#include <arpa/inet.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "worker/transport/gloo/records.h"
#include "worker/transport/gloo/store.h"
#include "worker/transport/gloo/transfer_records.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kControlSlot = 0;
constexpr uint64_t kPayloadSlot = 1;
// A wait of Gloo's that times out closes all of its pairs: waits are ended by abort, never by time.
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365);
constexpr std::chrono::milliseconds kLastWords(200);  // for telling the peers why, while closing

bool is_numeric_address(const std::string& address) {
  std::array<unsigned char, sizeof(in6_addr)> binary;
  return inet_pton(AF_INET, address.c_str(), binary.data()) == 1 ||
         inet_pton(AF_INET6, address.c_str(), binary.data()) == 1;
}

class GlooEndpoint final : public Endpoint {
 public:
  ~GlooEndpoint() override;

  Status open(const Group& group, Rendezvous& rendezvous, Duration timeout) override;
  StatusOr<TransferId> post_send(RankIndex target, const void* data, int64_t bytes) override;
  StatusOr<TransferId> post_receive(RankIndex source, void* data, int64_t bytes) override;
  Status wait(TransferId id) override;
  void abort(const std::string& reason) override;
  Status drain() override;

 private:
  Status connect(Rendezvous& rendezvous, Duration timeout);
  void start_control();
  void prepare(ControlSend& send, ControlKind kind);
  void control_loop(GlooPeer& peer);
  bool handle(GlooPeer& peer, const ControlMessage& message);
  void handle_ready_locked(GlooPeer& peer, const ControlMessage& message);
  void handle_goodbye_locked(GlooPeer& peer, const ControlMessage& message);
  void peer_lost(GlooPeer& peer, const std::string& what);

  Status check_post_locked(RankIndex peer, const void* data, int64_t bytes);
  void start_send_locked(GlooPeer& peer, GlooTransfer& transfer, int64_t expected_bytes);
  Status end_wait(GlooTransfer& transfer, const std::string& trouble);

  void fail_locked(const std::string& reason);
  void send_abort_locked(GlooPeer& peer, const std::string& reason);
  void join_control_threads();
  void close();

  Group group_;
  std::shared_ptr<::gloo::transport::Device> device_;
  std::shared_ptr<::gloo::rendezvous::Context> context_;
  bool connected_ = false;

  std::mutex mutex_;  // taken before any of Gloo's; Gloo never calls us
  std::condition_variable changed_;
  Status failure_;  // set once; all waits return it
  bool open_ = false;
  bool drained_ = false;
  TransferRecords transfers_;
  std::vector<std::unique_ptr<GlooPeer>> peers_;  // [rank], null for mine
};

GlooEndpoint::~GlooEndpoint() {
  close();
}

// ---- opening and closing

Status GlooEndpoint::open(const Group& group, Rendezvous& rendezvous, Duration timeout) {
  if (open_ || drained_) return failed_precondition("group {}: open is called once", group.name);
  if (group.rank.value < 0 || group.rank.value >= group.ranks) {
    return invalid_argument("group {}: rank {} of {}", group.name, group.rank.value, group.ranks);
  }
  {
    const std::lock_guard lock(mutex_);
    group_ = group;
    peers_.resize(group.ranks);
  }
  if (group.ranks > 1) PENSTOCK_RETURN_IF_ERROR(connect(rendezvous, timeout));
  const std::lock_guard lock(mutex_);
  open_ = true;
  return ok_status();
}

Status GlooEndpoint::connect(Rendezvous& rendezvous, Duration timeout) {
  // Gloo resolves host names itself and does not survive one that cannot be resolved.
  if (!is_numeric_address(group_.bind_address)) {
    return invalid_argument("group {}: bind address expected numeric, found \"{}\"", group_.name,
                            group_.bind_address);
  }
  // Gloo writes without MSG_NOSIGNAL: a lost peer must be an error, not our end.
  std::signal(SIGPIPE, SIG_IGN);
  RendezvousStore store(rendezvous, SystemClock().now() + timeout);
  try {
    ::gloo::transport::tcp::attr attributes;
    attributes.hostname = group_.bind_address;
    device_ = ::gloo::transport::tcp::CreateDevice(attributes);
    context_ = std::make_shared<::gloo::rendezvous::Context>(group_.rank.value, group_.ranks);
    // Gloo waits five times this long for a connection.
    const auto fifth = std::chrono::duration_cast<std::chrono::milliseconds>(timeout) / 5;
    context_->setTimeout(std::max(fifth, std::chrono::milliseconds(1)));
    context_->connectFullMesh(store, device_);
    start_control();
  } catch (const RendezvousError& error) {
    return with_context(error.status, fmt::format("group {}: rank {} opens", group_.name, group_.rank.value));
  } catch (const std::exception& error) {
    return unavailable("group {}: rank {} could not connect: {}", group_.name, group_.rank.value,
                       error.what());
  }
  return ok_status();
}

void GlooEndpoint::prepare(ControlSend& send, ControlKind kind) {
  send.message.kind = kind;
  if (!send.buffer) send.buffer = context_->createUnboundBuffer(&send.message, sizeof(ControlMessage));
}

void GlooEndpoint::start_control() {
  // A peer may abort before the last of our threads runs: none of them looks at the peers before all are
  // there.
  const std::lock_guard lock(mutex_);
  connected_ = true;
  for (int rank = 0; rank < group_.ranks; ++rank) {
    if (rank == group_.rank.value) continue;
    peers_[rank] = std::make_unique<GlooPeer>();
    GlooPeer& peer = *peers_[rank];
    peer.rank = rank;
    prepare(peer.goodbye, ControlKind::Goodbye);
    prepare(peer.goodbye_seen, ControlKind::GoodbyeSeen);
    prepare(peer.abort, ControlKind::Abort);
    for (int i = 0; i < kControlReceives; ++i) {
      peer.control_buffers[i] = context_->createUnboundBuffer(&peer.control[i], sizeof(ControlMessage));
      peer.control_buffers[i]->recv(peer.rank, kControlSlot);
    }
    peer.control_thread = std::thread([this, &peer] { control_loop(peer); });
  }
}

void GlooEndpoint::join_control_threads() {
  for (const auto& peer : peers_) {
    if (peer && peer->control_thread.joinable()) peer->control_thread.join();
  }
}

void GlooEndpoint::close() {
  {
    const std::lock_guard lock(mutex_);
    open_ = false;
    if (connected_ && !drained_) fail_locked(fmt::format("rank {} left without drain", group_.rank.value));
    for (const auto& peer : peers_) {
      if (!peer || drained_) continue;
      for (const auto& buffer : peer->control_buffers) {
        if (buffer) buffer->abortWaitRecv();
      }
    }
  }
  join_control_threads();
  for (const auto& peer : peers_) {
    if (!peer || peer->abort.message.reason_size == 0) continue;
    try {
      peer->abort.buffer->waitSend(kLastWords);
    } catch (const std::exception&) {  // the peer is gone: nobody is left to tell
    }
  }
  transfers_.clear();
  if (std::exchange(connected_, false)) context_->closeConnections();
  peers_.clear();
  context_.reset();
  device_.reset();
}

// ---- control channel

void GlooEndpoint::control_loop(GlooPeer& peer) {
  pthread_setname_np(pthread_self(), "gloo-control");
  try {
    for (int i = 0;; i = (i + 1) % kControlReceives) {
      if (!peer.control_buffers[i]->waitRecv(nullptr, kForever)) return;  // we are closing
      const ControlMessage message = peer.control[i];
      peer.control_buffers[i]->recv(peer.rank, kControlSlot);
      if (!handle(peer, message)) return;
    }
  } catch (const std::exception& error) {
    peer_lost(peer, error.what());
  }
}

// Returns false when nothing more will come from the peer.
bool GlooEndpoint::handle(GlooPeer& peer, const ControlMessage& message) {
  const std::lock_guard lock(mutex_);
  switch (message.kind) {
    case ControlKind::Ready:
      handle_ready_locked(peer, message);
      return true;
    case ControlKind::Goodbye:
      handle_goodbye_locked(peer, message);
      break;
    case ControlKind::GoodbyeSeen:
      peer.goodbye_acknowledged = true;
      break;
    case ControlKind::Abort: {
      const size_t size = std::min<size_t>(message.reason_size, message.reason.size());
      fail_locked(fmt::format("rank {} aborted: {}", peer.rank, std::string(message.reason.data(), size)));
      return true;
    }
  }
  changed_.notify_all();
  return !peer.farewell_complete();
}

void GlooEndpoint::handle_ready_locked(GlooPeer& peer, const ControlMessage& message) {
  if (!failure_.ok()) return;
  const bool in_order = message.first == peer.announcements++;
  if (!in_order || peer.announced.size() >= kTransfersInFlight) {
    return fail_locked(
        fmt::format("rank {} announced receive {} out of order or beyond the bound of {} in flight",
                    peer.rank, message.first, kTransfersInFlight));
  }
  if (peer.unannounced.empty()) {
    peer.announced.push_back(message.second);
    return;
  }
  GlooTransfer& transfer = *peer.unannounced.front();
  peer.unannounced.pop_front();
  start_send_locked(peer, transfer, message.second);
}

void GlooEndpoint::handle_goodbye_locked(GlooPeer& peer, const ControlMessage& message) {
  peer.goodbye_received = true;
  peer.sends_at_goodbye = message.first;
  peer.receives_at_goodbye = message.second;
  if (peer.receives > message.first || peer.sends > message.second) {
    fail_locked(fmt::format(
        "rank {} ended after {} sends and {} receives with rank {}, which posted {} receives and {} "
        "sends",
        peer.rank, message.first, message.second, group_.rank.value, peer.receives, peer.sends));
  }
  peer.goodbye_seen.buffer->send(peer.rank, kControlSlot);
}

void GlooEndpoint::peer_lost(GlooPeer& peer, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (peer.goodbye_received) {  // it closed after all that was between us had ended
    peer.goodbye_acknowledged = true;
    changed_.notify_all();
    return;
  }
  fail_locked(fmt::format("rank {} was lost: {}", peer.rank, what));
}

// ---- posting

Status GlooEndpoint::check_post_locked(RankIndex peer, const void* data, int64_t bytes) {
  if (!open_ || drained_) return failed_precondition("group {}: not open", group_.name);
  PENSTOCK_RETURN_IF_ERROR(failure_);
  if (peer.value < 0 || peer.value >= group_.ranks || peer == group_.rank) {
    return invalid_argument("rank {} of {} posts a transfer with rank {}", group_.rank.value, group_.ranks,
                            peer.value);
  }
  if (bytes < 0 || (data == nullptr && bytes > 0)) {
    return invalid_argument("transfer of {} bytes at {} with rank {}", bytes, data, peer.value);
  }
  if (transfers_.in_flight() >= kTransfersInFlight) {
    return resource_exhausted("{} transfers are in flight, none of them waited for; the bound is {}",
                              transfers_.in_flight(), kTransfersInFlight);
  }
  return ok_status();
}

StatusOr<TransferId> GlooEndpoint::post_send(RankIndex target, const void* data, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(check_post_locked(target, data, bytes));
  GlooPeer& peer = *peers_[target.value];
  GlooTransfer& transfer =
      transfers_.take(*context_, Direction::Send, peer.rank, const_cast<void*>(data), bytes);
  ++peer.sends;
  if (peer.goodbye_received && peer.sends > peer.receives_at_goodbye) {
    fail_locked(fmt::format("rank {} ended after {} receives; rank {} posts send {} to it", peer.rank,
                            peer.receives_at_goodbye, group_.rank.value, peer.sends));
    return failure_;
  }
  if (peer.announced.empty()) {
    peer.unannounced.push_back(&transfer);
  } else {
    const int64_t expected_bytes = peer.announced.front();
    peer.announced.pop_front();
    start_send_locked(peer, transfer, expected_bytes);
  }
  return TransferId{transfer.id};
}

StatusOr<TransferId> GlooEndpoint::post_receive(RankIndex source, void* data, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(check_post_locked(source, data, bytes));
  GlooPeer& peer = *peers_[source.value];
  GlooTransfer& transfer = transfers_.take(*context_, Direction::Receive, peer.rank, data, bytes);
  const int64_t number = peer.receives++;
  if (peer.goodbye_received && peer.receives > peer.sends_at_goodbye) {
    fail_locked(fmt::format("rank {} ended after {} sends; rank {} posts receive {} from it", peer.rank,
                            peer.sends_at_goodbye, group_.rank.value, peer.receives));
    return failure_;
  }
  try {
    transfer.payload->recv(peer.rank, kPayloadSlot);
    transfer.started = true;
    prepare(transfer.ready, ControlKind::Ready);
    transfer.ready.message.first = number;
    transfer.ready.message.second = bytes;
    transfer.ready.buffer->send(peer.rank, kControlSlot);
  } catch (const std::exception& error) {
    transfer.payload.reset();  // the caller gets no id to wait for: its memory is its own again
    fail_locked(fmt::format("rank {} was lost: {}", peer.rank, error.what()));
    return failure_;
  }
  return TransferId{transfer.id};
}

void GlooEndpoint::start_send_locked(GlooPeer& peer, GlooTransfer& transfer, int64_t expected_bytes) {
  if (transfer.bytes != expected_bytes) {
    return fail_locked(fmt::format("rank {} sends {} bytes to rank {}, which expects {}", group_.rank.value,
                                   transfer.bytes, peer.rank, expected_bytes));
  }
  try {
    transfer.payload->send(peer.rank, kPayloadSlot);
    transfer.started = true;
    changed_.notify_all();
  } catch (const std::exception& error) {
    fail_locked(fmt::format("rank {} was lost: {}", peer.rank, error.what()));
  }
}

// ---- waiting

Status GlooEndpoint::wait(TransferId id) {
  GlooTransfer* transfer = nullptr;
  bool started = false;
  {
    std::unique_lock lock(mutex_);
    transfer = transfers_.find(id);
    if (transfer == nullptr)
      return invalid_argument("transfer {} is unknown or was waited for before", id.value);
    changed_.wait(lock, [&] { return transfer->started || !failure_.ok(); });
    started = transfer->started;
  }
  std::string trouble;
  try {
    if (!started) {
      trouble = "the transfer had not started";
    } else if (transfer->direction == Direction::Send) {
      if (!transfer->payload->waitSend(nullptr, kForever)) trouble = "woken";
    } else {
      if (!transfer->payload->waitRecv(nullptr, kForever)) trouble = "woken";
      // The message has come, so its announcement has been written: this returns at once.
      if (trouble.empty() && !transfer->ready.buffer->waitSend(nullptr, kForever)) trouble = "woken";
    }
  } catch (const std::exception& error) {
    trouble = error.what();
  }
  return end_wait(*transfer, trouble);
}

Status GlooEndpoint::end_wait(GlooTransfer& transfer, const std::string& trouble) {
  std::unique_ptr<UnboundBuffer> payload;  // ends outside of the lock
  const std::lock_guard lock(mutex_);
  if (!trouble.empty()) {
    fail_locked(fmt::format("rank {} was lost: {}", transfer.peer, trouble));
    // From here on Gloo's thread cannot touch the caller's memory any more.
    payload = std::move(transfer.payload);
  }
  transfers_.give_back(transfer);
  return trouble.empty() ? ok_status() : failure_;
}

// ---- ending

void GlooEndpoint::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  fail_locked(reason);
}

void GlooEndpoint::fail_locked(const std::string& reason) {
  if (!failure_.ok() || drained_) return;
  failure_ = aborted("{}", reason);
  transfers_.abort_waits();
  for (const auto& peer : peers_) {
    if (peer) send_abort_locked(*peer, reason);
  }
  changed_.notify_all();
}

void GlooEndpoint::send_abort_locked(GlooPeer& peer, const std::string& reason) {
  ControlMessage& message = peer.abort.message;
  message.reason_size = static_cast<uint32_t>(std::min(reason.size(), message.reason.size()));
  std::memcpy(message.reason.data(), reason.data(), message.reason_size);
  try {
    peer.abort.buffer->send(peer.rank, kControlSlot);
  } catch (const std::exception&) {
    message.reason_size = 0;  // it is gone: nobody is left to tell
  }
}

Status GlooEndpoint::drain() {
  std::unique_lock lock(mutex_);
  if (!open_ || drained_) return failed_precondition("group {}: not open", group_.name);
  PENSTOCK_RETURN_IF_ERROR(failure_);
  if (transfers_.in_flight() > 0) {
    return failed_precondition("rank {} drains with {} transfers that were never waited for",
                               group_.rank.value, transfers_.in_flight());
  }
  for (const auto& peer : peers_) {
    if (!peer) continue;
    peer->goodbye.message.first = peer->sends;
    peer->goodbye.message.second = peer->receives;
    try {
      peer->goodbye.buffer->send(peer->rank, kControlSlot);
    } catch (const std::exception& error) {
      fail_locked(fmt::format("rank {} was lost: {}", peer->rank, error.what()));
      return failure_;
    }
  }
  changed_.wait(lock, [&] {
    const bool complete = std::all_of(peers_.begin(), peers_.end(),
                                      [](const auto& peer) { return !peer || peer->farewell_complete(); });
    return complete || !failure_.ok();
  });
  PENSTOCK_RETURN_IF_ERROR(failure_);
  drained_ = true;
  lock.unlock();
  close();
  return ok_status();
}

}  // namespace

std::unique_ptr<Endpoint> make_gloo_endpoint() {
  return std::make_unique<GlooEndpoint>();
}

}  // namespace penstock::worker
