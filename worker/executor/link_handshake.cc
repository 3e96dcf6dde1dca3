#include "worker/executor/link_handshake.h"

#include <algorithm>
#include <vector>

#include "worker/transport/all_gather.h"
#include "worker/transport/pending_transfers.h"

namespace penstock::worker {
namespace {

// What one rank believes of the two links between it and a peer. A link that it does not know has no
// messages.
struct EdgeBelief {
  struct OfLink {
    uint64_t messages = 0;
    uint64_t digest = 0;
    bool operator==(const OfLink&) const = default;
  };
  OfLink from_lower;  // lower rank to higher
  OfLink from_higher;
};

EdgeBelief::OfLink belief_of(const plan::RankProgram& program, RankIndex source, RankIndex target) {
  for (const plan::Link& link : program.links) {
    if (link.source == source && link.target == target) {
      return {static_cast<uint64_t>(link.messages), plan::transfer_digest(program, source, target)};
    }
  }
  return {};
}

Status compare(RankIndex source, RankIndex target, RankIndex peer, const EdgeBelief::OfLink& mine,
               const EdgeBelief::OfLink& theirs) {
  if (mine == theirs) return ok_status();
  return failed_precondition(
      "link {}>{}: this rank's program passes {} messages with digest {:016x}, "
      "rank {}'s passes {} with {:016x}; the two were told different programs",
      source.value, target.value, mine.messages, mine.digest, peer.value, theirs.messages, theirs.digest);
}

// Each rank gets what the other believes of their links. Nothing is under way afterwards, also after an error.
Status exchange(Endpoint& endpoint, RankIndex me, std::vector<EdgeBelief>& mine,
                std::vector<EdgeBelief>& theirs) {
  const int ranks = static_cast<int>(mine.size());
  PendingTransfers transfers(endpoint, 2L * ranks);
  const auto post = [&](RankIndex peer) -> Status {
    PENSTOCK_RETURN_IF_ERROR(transfers.post_receive(peer, &theirs[peer.value], sizeof(EdgeBelief)));
    return transfers.post_send(peer, &mine[peer.value], sizeof(EdgeBelief));
  };
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == me.value) continue;
    if (const Status posted = post(RankIndex(rank)); !posted.ok()) return transfers.give_up(posted);
  }
  return transfers.wait();
}

}  // namespace

Status compare_link_digests(Endpoint& endpoint, const plan::RankProgram& program) {
  const RankIndex me = program.rank;
  std::vector<EdgeBelief> mine(program.ranks), theirs(program.ranks);
  for (int rank = 0; rank < program.ranks; ++rank) {
    if (rank == me.value) continue;
    const RankIndex lower(std::min(rank, me.value)), higher(std::max(rank, me.value));
    mine[rank] = {belief_of(program, lower, higher), belief_of(program, higher, lower)};
  }
  PENSTOCK_RETURN_IF_ERROR(exchange(endpoint, me, mine, theirs));
  for (int rank = 0; rank < program.ranks; ++rank) {
    const RankIndex lower(std::min(rank, me.value)), higher(std::max(rank, me.value));
    PENSTOCK_RETURN_IF_ERROR(
        compare(lower, higher, RankIndex(rank), mine[rank].from_lower, theirs[rank].from_lower));
    PENSTOCK_RETURN_IF_ERROR(
        compare(higher, lower, RankIndex(rank), mine[rank].from_higher, theirs[rank].from_higher));
  }
  return ok_status();
}

Status compare_work(const JoinedGroup& group, const plan::RankProgram& program) {
  const auto [endpoint, rank, ranks] = group.member;
  const uint64_t mine = plan::work_digest(program);
  AllGather gather(*endpoint, rank, std::vector<int>(static_cast<size_t>(ranks), 2));
  gather.mine()[0] = static_cast<double>(mine >> 32);  // halves, which a double holds exactly
  gather.mine()[1] = static_cast<double>(mine & 0xffffffff);
  PENSTOCK_RETURN_IF_ERROR(gather.run());
  const std::span<const double> first = gather.part(RankIndex(0));
  for (int r = 1; r < ranks; ++r) {
    const std::span<const double> other = gather.part(RankIndex(r));
    if (std::equal(first.begin(), first.end(), other.begin())) continue;
    return failed_precondition(
        "ranks {} and {} have the same stages in pipelines side by side, and were told different programs",
        group.in_job(RankIndex(0)).value, group.in_job(RankIndex(r)).value);
  }
  return ok_status();
}

}  // namespace penstock::worker
