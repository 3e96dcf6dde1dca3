#include "worker/transport/in_process.h"

#include <cstring>
#include <deque>
#include <set>
#include <vector>

namespace penstock::worker {

Status InProcessRendezvous::publish(RankIndex rank, const std::string& item, const std::string& value) {
  const std::lock_guard lock(mutex_);
  if (!values_.emplace(std::pair(rank, item), value).second) {
    return already_exists("rank {} published \"{}\" before", rank.value, item);
  }
  published_.notify_all();
  return ok_status();
}

StatusOr<std::string> InProcessRendezvous::look_up(RankIndex rank, const std::string& item,
                                                   Duration timeout) {
  std::unique_lock lock(mutex_);
  const auto key = std::pair(rank, item);
  const bool found = published_.wait_for(lock, timeout, [&] { return values_.contains(key); });
  if (!found) return deadline_exceeded("rank {} did not publish \"{}\" in time", rank.value, item);
  return values_.at(key);
}

// One mutex for the whole group: the ranks are few and the messages of tests small.
class InProcessHub {
 public:
  struct Transfer {
    const void* source = nullptr;  // of a send
    void* target = nullptr;        // of a receive
    int64_t bytes = 0;
    bool done = false;
  };
  struct Edge {  // messages from one rank to another; one of the queues is always empty
    std::deque<Transfer*> sends;
    std::deque<Transfer*> receives;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<RankIndex, RankIndex>, Edge> edges;
  Status failure;  // of the whole group: its ranks share a fate
  std::set<RankIndex> opened;
  std::set<RankIndex> drained;

  void fail_locked(const std::string& reason) {
    if (failure.ok()) failure = aborted("{}", reason);
    changed.notify_all();
  }

  void match_locked(RankIndex source, RankIndex target) {
    Edge& edge = edges[{source, target}];
    while (!edge.sends.empty() && !edge.receives.empty()) {
      Transfer& send = *edge.sends.front();
      Transfer& receive = *edge.receives.front();
      if (send.bytes != receive.bytes) {
        return fail_locked(fmt::format("rank {} sends {} bytes to rank {}, which expects {}", source.value,
                                       send.bytes, target.value, receive.bytes));
      }
      if (send.bytes > 0) std::memcpy(receive.target, send.source, static_cast<size_t>(send.bytes));
      send.done = receive.done = true;
      edge.sends.pop_front();
      edge.receives.pop_front();
      changed.notify_all();
    }
  }
};

namespace {

class InProcessEndpoint final : public Endpoint {
 public:
  explicit InProcessEndpoint(std::shared_ptr<InProcessHub> hub) : hub_(std::move(hub)) {}

  ~InProcessEndpoint() override {
    const std::lock_guard lock(hub_->mutex);
    if (!open_) return;
    if (!hub_->drained.contains(group_.rank)) {
      hub_->fail_locked(fmt::format("rank {} left without drain", group_.rank.value));
    }
    for (const auto& [id, transfer] : transfers_) forget_locked(transfer);
  }

  Status open(const Group& group, Rendezvous& rendezvous, Duration timeout) override {
    if (group.rank.value < 0 || group.rank.value >= group.ranks) {
      return invalid_argument("group {}: rank {} of {}", group.name, group.rank.value, group.ranks);
    }
    group_ = group;
    PENSTOCK_RETURN_IF_ERROR(rendezvous.publish(group.rank, "in_process", "here"));
    for (int rank = 0; rank < group.ranks; ++rank) {
      PENSTOCK_RETURN_IF_ERROR(rendezvous.look_up(RankIndex(rank), "in_process", timeout).status());
    }
    const std::lock_guard lock(hub_->mutex);
    hub_->opened.insert(group.rank);
    open_ = true;
    return ok_status();
  }

  StatusOr<TransferId> post_send(RankIndex target, const void* data, int64_t bytes) override {
    return post(target, {.source = data, .bytes = bytes});
  }

  StatusOr<TransferId> post_receive(RankIndex source, void* data, int64_t bytes) override {
    return post(source, {.target = data, .bytes = bytes}, Direction::Receive);
  }

  Status wait(TransferId id) override {
    std::unique_lock lock(hub_->mutex);
    const auto found = transfers_.find(id.value);
    if (found == transfers_.end()) return invalid_argument("transfer {} is unknown or has ended", id.value);
    hub_->changed.wait(lock, [&] { return found->second.done || !hub_->failure.ok(); });
    const bool done = found->second.done;
    if (!done) forget_locked(found->second);
    transfers_.erase(found);
    return done ? ok_status() : hub_->failure;
  }

  void abort(const std::string& reason) override {
    const std::lock_guard lock(hub_->mutex);
    hub_->fail_locked(reason);
  }

  Status drain() override {
    std::unique_lock lock(hub_->mutex);
    PENSTOCK_RETURN_IF_ERROR(hub_->failure);
    if (!transfers_.empty()) {
      return failed_precondition("rank {} drains with {} transfers that were never waited for",
                                 group_.rank.value, transfers_.size());
    }
    for (const auto& [ranks, edge] : hub_->edges) {
      const bool ours = ranks.first == group_.rank || ranks.second == group_.rank;
      if (ours && !(edge.sends.empty() && edge.receives.empty())) {
        hub_->fail_locked(fmt::format("rank {} has drained while another rank waits for a transfer with it",
                                      group_.rank.value));
        return hub_->failure;
      }
    }
    hub_->drained.insert(group_.rank);
    hub_->changed.notify_all();
    hub_->changed.wait(
        lock, [&] { return static_cast<int>(hub_->drained.size()) == group_.ranks || !hub_->failure.ok(); });
    return static_cast<int>(hub_->drained.size()) == group_.ranks ? ok_status() : hub_->failure;
  }

 private:
  enum class Direction : uint8_t { Send, Receive };

  StatusOr<TransferId> post(RankIndex peer, InProcessHub::Transfer transfer,
                            Direction direction = Direction::Send) {
    if (peer.value < 0 || peer.value >= group_.ranks || peer == group_.rank || transfer.bytes < 0) {
      return invalid_argument("rank {} of {}: transfer of {} bytes with rank {}", group_.rank.value,
                              group_.ranks, transfer.bytes, peer.value);
    }
    const std::lock_guard lock(hub_->mutex);
    PENSTOCK_RETURN_IF_ERROR(hub_->failure);
    if (hub_->drained.contains(peer)) {
      hub_->fail_locked(fmt::format("rank {} has drained while rank {} posts a transfer with it", peer.value,
                                    group_.rank.value));
      return hub_->failure;
    }
    const int64_t id = next_id_++;
    InProcessHub::Transfer& posted = transfers_[id] = transfer;
    const bool sends = direction == Direction::Send;
    const RankIndex source = sends ? group_.rank : peer;
    const RankIndex target = sends ? peer : group_.rank;
    InProcessHub::Edge& edge = hub_->edges[{source, target}];
    (sends ? edge.sends : edge.receives).push_back(&posted);
    hub_->match_locked(source, target);
    return TransferId{id};
  }

  // After a failure nobody may touch the caller's memory again.
  void forget_locked(const InProcessHub::Transfer& transfer) {
    for (auto& [ranks, edge] : hub_->edges) {
      std::erase(edge.sends, &transfer);
      std::erase(edge.receives, &transfer);
    }
  }

  std::shared_ptr<InProcessHub> hub_;
  Group group_;
  bool open_ = false;
  std::map<int64_t, InProcessHub::Transfer> transfers_;
  int64_t next_id_ = 0;
};

}  // namespace

std::shared_ptr<InProcessHub> make_in_process_hub() {
  return std::make_shared<InProcessHub>();
}

std::unique_ptr<Endpoint> make_in_process_endpoint(std::shared_ptr<InProcessHub> hub) {
  return std::make_unique<InProcessEndpoint>(std::move(hub));
}

}  // namespace penstock::worker
