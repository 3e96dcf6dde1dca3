#include "worker/executor/data_handshake.h"

#include <type_traits>
#include <vector>

#include "worker/transport/pending_transfers.h"

namespace penstock::worker {
namespace {

struct Announcement {
  uint64_t reads_data = 0;
  DataDigest digest;
};
static_assert(std::is_trivially_copyable_v<Announcement>);

Status exchange(Endpoint& endpoint, RankIndex rank, const Announcement& mine,
                std::vector<Announcement>& all) {
  PendingTransfers transfers(endpoint, 2 * static_cast<int64_t>(all.size()));
  const auto post = [&](RankIndex peer) -> Status {
    PENSTOCK_RETURN_IF_ERROR(transfers.post_receive(peer, &all[peer.value], sizeof(Announcement)));
    return transfers.post_send(peer, &mine, sizeof(Announcement));
  };
  for (int peer = 0; peer < static_cast<int>(all.size()); ++peer) {
    if (peer == rank.value) continue;
    if (const Status posted = post(RankIndex(peer)); !posted.ok()) return transfers.give_up(posted);
  }
  return transfers.wait();
}

}  // namespace

Status compare_data(const JoinedGroup& group, const DataFingerprint* mine) {
  const RankIndex rank = group.member.rank;
  Announcement announcement;
  if (mine != nullptr) announcement = {.reads_data = 1, .digest = mine->digest()};
  std::vector<Announcement> all(static_cast<size_t>(group.member.ranks));
  PENSTOCK_RETURN_IF_ERROR(exchange(*group.member.endpoint, rank, announcement, all));
  for (int peer = 0; peer < group.member.ranks; ++peer) {
    if (mine == nullptr || peer == rank.value || all[peer].reads_data == 0) continue;
    PENSTOCK_RETURN_IF_ERROR(mine->compare(all[peer].digest, fmt::format("rank {}", group.in_job(rank).value),
                                           fmt::format("rank {}", group.in_job(RankIndex(peer)).value)));
  }
  return ok_status();
}

}  // namespace penstock::worker
