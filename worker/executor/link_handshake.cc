#include "worker/executor/link_handshake.h"

#include <algorithm>
#include <vector>

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
      "link {}>{}: this rank's program passes {} messages with digest {:016x}, rank {}'s passes {} with "
      "{:016x}; the "
      "two were told different programs",
      source.value, target.value, mine.messages, mine.digest, peer.value, theirs.messages, theirs.digest);
}

}  // namespace

Status compare_link_digests(Endpoint& endpoint, const plan::RankProgram& program) {
  const RankIndex me = program.rank;
  std::vector<EdgeBelief> mine(program.ranks), theirs(program.ranks);
  std::vector<TransferId> transfers;
  for (int rank = 0; rank < program.ranks; ++rank) {
    if (rank == me.value) continue;
    const RankIndex lower(std::min(rank, me.value)), higher(std::max(rank, me.value));
    mine[rank] = {belief_of(program, lower, higher), belief_of(program, higher, lower)};
    PENSTOCK_ASSIGN_OR_RETURN(const TransferId receive,
                              endpoint.post_receive(RankIndex(rank), &theirs[rank], sizeof(EdgeBelief)));
    PENSTOCK_ASSIGN_OR_RETURN(const TransferId send,
                              endpoint.post_send(RankIndex(rank), &mine[rank], sizeof(EdgeBelief)));
    transfers.insert(transfers.end(), {receive, send});
  }
  for (const TransferId transfer : transfers) PENSTOCK_RETURN_IF_ERROR(endpoint.wait(transfer));
  for (int rank = 0; rank < program.ranks; ++rank) {
    const RankIndex lower(std::min(rank, me.value)), higher(std::max(rank, me.value));
    PENSTOCK_RETURN_IF_ERROR(
        compare(lower, higher, RankIndex(rank), mine[rank].from_lower, theirs[rank].from_lower));
    PENSTOCK_RETURN_IF_ERROR(
        compare(higher, lower, RankIndex(rank), mine[rank].from_higher, theirs[rank].from_higher));
  }
  return ok_status();
}

}  // namespace penstock::worker
