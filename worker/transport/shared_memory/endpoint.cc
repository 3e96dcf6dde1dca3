#include "worker/transport/shared_memory/endpoint.h"

#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "worker/transport/shared_memory/address.h"
#include "worker/transport/shared_memory/peer.h"
#include "worker/transport/shared_memory/sentinel.h"
#include "worker/transport/shared_memory/transfer_table.h"

namespace penstock::worker {
namespace {

constexpr const char* kItem = "window";  // of the rendezvous

class SharedMemoryEndpoint final : public Endpoint {
 public:
  ~SharedMemoryEndpoint() override { close(); }

  StatusOr<std::shared_ptr<void>> receive_memory(int64_t bytes) override;
  Status open(const Group& group, Rendezvous& rendezvous, Duration timeout) override;
  StatusOr<TransferId> post_send(RankIndex target, const void* data, int64_t bytes) override;
  StatusOr<TransferId> post_receive(RankIndex source, void* data, int64_t bytes) override;
  Status wait(TransferId id) override;
  void abort(const std::string& reason) override;
  Status drain() override;

 private:
  using Lock = std::unique_lock<std::mutex>;

  Status connect(Rendezvous& rendezvous, Duration timeout);
  Status publish_window(Rendezvous& rendezvous, const Neighbourhood& neighbourhood);
  Status map_peer(int rank, const WindowAddress& address);
  Status start();
  void close();

  Status check_post_locked(RankIndex peer, const void* data, int64_t bytes) const;
  Transfer& take_record_locked(Transfer::Direction direction, RankIndex peer, const void* data,
                               int64_t bytes);

  void progress_loop();
  void attend_locked(Lock& lock, Peer& peer);
  void hear_locked(Peer& peer);
  void hear_goodbye_locked(Peer& peer);
  template <typename Way>
  void move_locked(Lock& lock, Way& way);
  bool is_busy(const Transfer& transfer) const;
  void peer_ended(int rank);
  void fail_locked(const std::string& reason);

  Doorbell& bell() const { return window_->bell(); }

  Group group_;
  std::vector<std::shared_ptr<Region>> memory_;  // of receive_memory()
  std::optional<Window> window_;                 // with more than one rank, from connect() on
  Sentinel sentinel_;
  std::thread progress_;
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;
  Status failure_;  // set once; all waits return it
  bool open_ = false;
  bool drained_ = false;
  TransferTable transfers_{kTransfersPosted};
  std::vector<std::unique_ptr<Peer>> peers_;  // [rank], null for mine
};

// ---- opening and closing

StatusOr<std::shared_ptr<void>> SharedMemoryEndpoint::receive_memory(int64_t bytes) {
  if (open_ || window_) return failed_precondition("memory for receives is asked for before open");
  if (memory_.size() + 1 >= kRegions) {
    return resource_exhausted("a window has {} regions, all in use", kRegions);
  }
  if (bytes <= 0) return nullptr;
  PENSTOCK_ASSIGN_OR_RETURN(std::shared_ptr<Region> region,
                            Region::create(bytes, "receives", Region::Pages::Now));
  memory_.push_back(region);
  return std::shared_ptr<void>(region, region->data());
}

Status SharedMemoryEndpoint::open(const Group& group, Rendezvous& rendezvous, Duration timeout) {
  if (open_ || window_ || drained_) return failed_precondition("group {}: open is called once", group.name);
  if (group.rank.value < 0 || group.rank.value >= group.ranks) {
    return invalid_argument("group {}: rank {} of {}", group.name, group.rank.value, group.ranks);
  }
  group_ = group;
  if (group.ranks > 1) {
    PENSTOCK_RETURN_IF_ERROR(with_context(
        connect(rendezvous, timeout), fmt::format("group {}: rank {} opens", group.name, group.rank.value)));
  }
  const std::lock_guard lock(mutex_);
  open_ = true;
  return ok_status();
}

Status SharedMemoryEndpoint::connect(Rendezvous& rendezvous, Duration timeout) {
  const SystemClock clock;
  const TimePoint deadline = clock.now() + timeout;
  PENSTOCK_ASSIGN_OR_RETURN(const Neighbourhood neighbourhood, here());
  PENSTOCK_RETURN_IF_ERROR(publish_window(rendezvous, neighbourhood));
  peers_.resize(static_cast<size_t>(group_.ranks));
  for (int rank = 0; rank < group_.ranks; ++rank) {
    if (rank == group_.rank.value) continue;
    const Duration left = std::max(Duration::zero(), deadline - clock.now());
    PENSTOCK_ASSIGN_OR_RETURN(const std::string text, rendezvous.look_up(RankIndex(rank), kItem, left));
    PENSTOCK_ASSIGN_OR_RETURN(const WindowAddress address, parse_window_address(text));
    PENSTOCK_RETURN_IF_ERROR(
        check_neighbours(group_.rank, neighbourhood, RankIndex(rank), address.neighbourhood));
    PENSTOCK_RETURN_IF_ERROR(with_context(map_peer(rank, address), fmt::format("window of rank {}", rank)));
  }
  return start();
}

Status SharedMemoryEndpoint::publish_window(Rendezvous& rendezvous, const Neighbourhood& neighbourhood) {
  uint64_t nonce = 0;
  if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
    return internal_error("getrandom: {}", strerror(errno));
  PENSTOCK_ASSIGN_OR_RETURN(window_, Window::create(group_.rank.value, group_.ranks, nonce, memory_));
  WindowAddress address{.neighbourhood = neighbourhood, .pid = getpid(), .nonce = nonce, .regions = {}};
  for (const auto& region : window_->regions()) address.regions.push_back({region->fd(), region->bytes()});
  return rendezvous.publish(group_.rank, kItem, to_string(address));
}

// The process is watched first: should its pid belong to another one by then, the window is not found there.
Status SharedMemoryEndpoint::map_peer(int rank, const WindowAddress& address) {
  if (address.pid != getpid()) PENSTOCK_RETURN_IF_ERROR(sentinel_.watch(rank, address.pid));
  std::vector<std::shared_ptr<Region>> regions;
  for (const WindowAddress::Part& part : address.regions) {
    PENSTOCK_ASSIGN_OR_RETURN(regions.emplace_back(), Region::open(address.pid, part.fd, part.bytes));
  }
  PENSTOCK_ASSIGN_OR_RETURN(Window window,
                            Window::of_peer(rank, group_.ranks, address.nonce, std::move(regions)));
  peers_[static_cast<size_t>(rank)] =
      std::make_unique<Peer>(group_.rank.value, rank, address.pid, *window_, std::move(window));
  return ok_status();
}

Status SharedMemoryEndpoint::start() {
  PENSTOCK_RETURN_IF_ERROR(sentinel_.start([this](int rank) { peer_ended(rank); }));
  progress_ = std::thread([this] { progress_loop(); });
  return ok_status();
}

void SharedMemoryEndpoint::close() {
  const bool connected = progress_.joinable();
  if (connected) {
    {
      const std::lock_guard lock(mutex_);
      fail_locked(fmt::format("rank {} left without drain", group_.rank.value));
      open_ = false;
    }
    stopping_ = true;
    ring(bell(), Sleeper::Both);
    progress_.join();
  }
  sentinel_.stop();
  peers_.clear();
}

// ---- posting

Status SharedMemoryEndpoint::check_post_locked(RankIndex peer, const void* data, int64_t bytes) const {
  if (!open_ || drained_) return failed_precondition("group {}: not open", group_.name);
  PENSTOCK_RETURN_IF_ERROR(failure_);
  if (peer.value < 0 || peer.value >= group_.ranks || peer == group_.rank) {
    return invalid_argument("rank {} of {} posts a transfer with rank {}", group_.rank.value, group_.ranks,
                            peer.value);
  }
  if (bytes < 0 || (data == nullptr && bytes > 0)) {
    return invalid_argument("transfer of {} bytes at {} with rank {}", bytes, data, peer.value);
  }
  if (transfers_.full()) {
    return resource_exhausted("{} transfers are in flight, none of them waited for", transfers_.active());
  }
  return ok_status();
}

Transfer& SharedMemoryEndpoint::take_record_locked(Transfer::Direction direction, RankIndex peer,
                                                   const void* data, int64_t bytes) {
  Transfer& transfer = transfers_.take();
  transfer.direction = direction;
  transfer.peer = peer.value;
  transfer.data = static_cast<char*>(const_cast<void*>(data));
  transfer.bytes = bytes;
  return transfer;
}

StatusOr<TransferId> SharedMemoryEndpoint::post_send(RankIndex target, const void* data, int64_t bytes) {
  Lock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(check_post_locked(target, data, bytes));
  Peer& peer = *peers_[static_cast<size_t>(target.value)];
  hear_locked(peer);
  PENSTOCK_RETURN_IF_ERROR(failure_);
  if (peer.goodbye_received && peer.outgoing.posted() >= peer.receives_at_goodbye) {
    fail_locked(fmt::format("rank {} ended after {} receives; rank {} posts send {} to it", peer.rank,
                            peer.receives_at_goodbye, group_.rank.value, peer.outgoing.posted() + 1));
    return failure_;
  }
  Transfer& transfer = take_record_locked(Transfer::Direction::Send, target, data, bytes);
  const TransferId id{transfer.id};
  peer.outgoing.post(transfer);
  move_locked(lock, peer.outgoing);
  return id;
}

StatusOr<TransferId> SharedMemoryEndpoint::post_receive(RankIndex source, void* data, int64_t bytes) {
  Lock lock(mutex_);
  PENSTOCK_RETURN_IF_ERROR(check_post_locked(source, data, bytes));
  Peer& peer = *peers_[static_cast<size_t>(source.value)];
  hear_locked(peer);
  if (peer.incoming.full()) move_locked(lock, peer.incoming);
  PENSTOCK_RETURN_IF_ERROR(failure_);
  if (peer.incoming.full()) {
    return resource_exhausted("{} receives from rank {} are in flight", kReceivesInFlight, peer.rank);
  }
  if (peer.goodbye_received && peer.incoming.posted() >= peer.sends_at_goodbye) {
    fail_locked(fmt::format("rank {} ended after {} sends; rank {} posts receive {} from it", peer.rank,
                            peer.sends_at_goodbye, group_.rank.value, peer.incoming.posted() + 1));
    return failure_;
  }
  Transfer& transfer = take_record_locked(Transfer::Direction::Receive, source, data, bytes);
  peer.incoming.post(transfer);
  return TransferId{transfer.id};
}

// ---- progress

void SharedMemoryEndpoint::progress_loop() {
  pthread_setname_np(pthread_self(), "p2p-progress");
  while (true) {
    const uint32_t seen = bell().load(std::memory_order_acquire);
    if (stopping_) return;
    {
      Lock lock(mutex_);
      for (const auto& peer : peers_) {
        if (peer) attend_locked(lock, *peer);
      }
    }
    sleep_while(bell(), seen, Sleeper::Progress);
  }
}

// Does all that can be done with the peer now.
void SharedMemoryEndpoint::attend_locked(Lock& lock, Peer& peer) {
  hear_locked(peer);
  move_locked(lock, peer.incoming);
  move_locked(lock, peer.outgoing);
}

// Copies without the lock, piece by piece, so that posting and aborting wait for no copy. One thread at a time moves a
// way: what others have posted meanwhile it finds, and what they wait for it tells them.
template <typename Way>
void SharedMemoryEndpoint::move_locked(Lock& lock, Way& way) {
  if (way.busy || !failure_.ok()) return;
  way.busy = true;
  const uint64_t completed = way.completed();
  while (failure_.ok()) {
    const StatusOr<std::optional<Piece>> piece = way.next();
    if (!piece.ok()) fail_locked(message(piece.status()));
    if (!piece.ok() || !piece->has_value()) break;
    const Piece& bytes = **piece;
    lock.unlock();
    if (bytes.bytes > 0) std::memcpy(bytes.to, bytes.from, static_cast<size_t>(bytes.bytes));
    lock.lock();
    way.moved(bytes);
  }
  way.busy = false;
  if (way.completed() != completed || !failure_.ok()) ring(bell(), Sleeper::Waiter);
}

void SharedMemoryEndpoint::hear_locked(Peer& peer) {
  const uint32_t said = peer.hears.said.load(std::memory_order_acquire);
  if (said == 0 || !failure_.ok()) return;
  if ((said & Channel::kAbort) != 0) {
    return fail_locked(fmt::format("rank {} aborted: {}", peer.rank, peer.abort_reason()));
  }
  if ((said & Channel::kGoodbye) != 0 && !peer.goodbye_received) hear_goodbye_locked(peer);
}

void SharedMemoryEndpoint::hear_goodbye_locked(Peer& peer) {
  peer.goodbye_received = true;
  peer.sends_at_goodbye = peer.hears.sends.load(std::memory_order_relaxed);
  peer.receives_at_goodbye = peer.hears.receives.load(std::memory_order_relaxed);
  const uint64_t sends = peer.outgoing.posted();
  const uint64_t receives = peer.incoming.posted();
  if (receives > peer.sends_at_goodbye || sends > peer.receives_at_goodbye) {
    fail_locked(fmt::format(
        "rank {} ended after {} sends and {} receives with rank {}, which posted {} receives and {} sends",
        peer.rank, peer.sends_at_goodbye, peer.receives_at_goodbye, group_.rank.value, receives, sends));
  }
}

void SharedMemoryEndpoint::peer_ended(int rank) {
  const std::lock_guard lock(mutex_);
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  hear_locked(peer);  // its last words
  if (!peer.goodbye_received) {
    fail_locked(fmt::format("rank {} was lost: its process {} ended", rank, peer.pid));
  }
}

void SharedMemoryEndpoint::fail_locked(const std::string& reason) {
  if (!failure_.ok() || drained_) return;
  failure_ = aborted("{}", reason);
  for (const auto& peer : peers_) {
    if (peer) peer->tell_abort(reason);
  }
  if (window_) ring(bell(), Sleeper::Both);
}

// ---- waiting and ending

bool SharedMemoryEndpoint::is_busy(const Transfer& transfer) const {
  const Peer& peer = *peers_[static_cast<size_t>(transfer.peer)];
  return transfer.direction == Transfer::Direction::Send ? peer.outgoing.busy : peer.incoming.busy;
}

Status SharedMemoryEndpoint::wait(TransferId id) {
  Lock lock(mutex_);
  Transfer* transfer = transfers_.find(id.value);
  if (transfer == nullptr)
    return invalid_argument("transfer {} is unknown or was waited for before", id.value);
  Peer& peer = *peers_[static_cast<size_t>(transfer->peer)];
  while (!transfer->done) {
    const uint32_t seen = bell().load(std::memory_order_acquire);
    attend_locked(lock, peer);
    if (transfer->done) break;
    if (!failure_.ok() && !is_busy(*transfer)) break;  // nobody touches its memory any more
    lock.unlock();
    sleep_while(bell(), seen, Sleeper::Waiter);
    lock.lock();
  }
  Status status = transfer->done ? ok_status() : failure_;
  transfers_.give_back(*transfer);
  return status;
}

void SharedMemoryEndpoint::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  fail_locked(reason);
}

Status SharedMemoryEndpoint::drain() {
  Lock lock(mutex_);
  if (!open_ || drained_) return failed_precondition("group {}: not open", group_.name);
  PENSTOCK_RETURN_IF_ERROR(failure_);
  if (transfers_.active() > 0) {
    return failed_precondition("rank {} drains with {} transfers that were never waited for",
                               group_.rank.value, transfers_.active());
  }
  for (const auto& peer : peers_) {
    if (peer) peer->tell_goodbye();
  }
  const auto complete = [&] {
    return std::all_of(peers_.begin(), peers_.end(),
                       [](const auto& peer) { return !peer || peer->goodbye_received; });
  };
  while (!peers_.empty()) {
    const uint32_t seen = bell().load(std::memory_order_acquire);
    for (const auto& peer : peers_) {
      if (peer) hear_locked(*peer);
    }
    PENSTOCK_RETURN_IF_ERROR(failure_);
    if (complete()) break;
    lock.unlock();
    sleep_while(bell(), seen, Sleeper::Waiter);
    lock.lock();
  }
  drained_ = true;
  lock.unlock();
  close();
  return ok_status();
}

}  // namespace

std::unique_ptr<Endpoint> make_shared_memory_endpoint() {
  return std::make_unique<SharedMemoryEndpoint>();
}

}  // namespace penstock::worker
