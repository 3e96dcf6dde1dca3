#include "worker/collectives/ordered_sum.h"

#include <algorithm>

#include "base/check.h"

namespace penstock::worker {

using kernels::DataType;
using kernels::TensorView;

namespace {

constexpr int64_t kStep = 16;  // elements: pieces begin where vectors do
constexpr int64_t kBufferElements = OrderedSum::kBufferBytes / static_cast<int64_t>(sizeof(float));

TensorView vector_at(float* values, int64_t elements) {
  return {values, DataType::Float32, {elements}};
}

}  // namespace

// How a tensor is cut.
struct OrderedSum::Run {
  Run(TensorView whole, std::span<const RankIndex> of, RankIndex me)
      : tensor(whole),
        ranks(of),
        mine(static_cast<size_t>(std::find(of.begin(), of.end(), me) - of.begin())),
        largest_piece(kBufferElements / (count() - 1) / kStep * kStep),
        rounds((whole.elements() + count() * largest_piece - 1) / (count() * largest_piece)) {
    PENSTOCK_CHECK(mine < of.size(), "rank {} is not among those of its sum", me.value);
    PENSTOCK_CHECK(largest_piece > 0, "a sum over {} ranks", count());
  }

  int64_t count() const { return static_cast<int64_t>(ranks.size()); }

  // Owned by the rank at `owner`; empty where the last round is short.
  TensorView piece(int64_t round, size_t owner) const {
    const int64_t first = round * count() * largest_piece;
    const int64_t end = std::min(first + count() * largest_piece, tensor.elements());
    const int64_t even = (end - first + count() - 1) / count();
    const int64_t size = (even + kStep - 1) / kStep * kStep;
    const int64_t begin = std::min(end, first + static_cast<int64_t>(owner) * size);
    return vector_at(tensor.f32() + begin, std::min(size, end - begin));
  }
  // Where the piece that this rank owns arrives from the rank at `source`.
  TensorView arrival(std::vector<float>& memory, int64_t round, size_t source) const {
    const int64_t place = static_cast<int64_t>(source < mine ? source : source - 1);
    float* const first = memory.data() + round % kInFlight * kBufferElements;
    return vector_at(first + place * largest_piece, piece(round, mine).elements());
  }

  TensorView tensor;
  std::span<const RankIndex> ranks;
  size_t mine;
  int64_t largest_piece;
  int64_t rounds;
};

OrderedSum::OrderedSum(const GroupMember& group, kernels::Operators& operators)
    : me_(group.rank),
      operators_(&operators),
      received_(static_cast<size_t>(group.ranks > 1 ? kInFlight * kBufferElements : 0)),
      scatters_{PendingTransfers(*group.endpoint, 2L * group.ranks),
                PendingTransfers(*group.endpoint, 2L * group.ranks)},
      gathers_{PendingTransfers(*group.endpoint, 2L * group.ranks),
               PendingTransfers(*group.endpoint, 2L * group.ranks)} {
  for (int rank = 0; rank < group.ranks; ++rank) all_.emplace_back(rank);
}

Status OrderedSum::sum(TensorView tensor, std::span<const RankIndex> ranks) {
  if (ranks.size() < 2 || tensor.elements() == 0) return ok_status();
  const Status status = play(Run(tensor, ranks, me_));
  if (status.ok()) return status;
  for (auto* slots : {&scatters_, &gathers_}) {
    for (PendingTransfers& slot : *slots) (void)slot.give_up(status);
  }
  return status;
}

Status OrderedSum::play(const Run& run) {
  PENSTOCK_RETURN_IF_ERROR(post_scatter(run, 0));
  for (int64_t round = 0; round < run.rounds; ++round) {
    if (round + 1 < run.rounds) PENSTOCK_RETURN_IF_ERROR(post_scatter(run, round + 1));
    PENSTOCK_RETURN_IF_ERROR(scatters_[static_cast<size_t>(round % kInFlight)].wait());
    add(run, round);
    PENSTOCK_RETURN_IF_ERROR(post_gather(run, round));
    if (round > 0) PENSTOCK_RETURN_IF_ERROR(gathers_[static_cast<size_t>((round - 1) % kInFlight)].wait());
  }
  return gathers_[static_cast<size_t>((run.rounds - 1) % kInFlight)].wait();
}

Status OrderedSum::post_scatter(const Run& run, int64_t round) {
  PendingTransfers& slot = scatters_[static_cast<size_t>(round % kInFlight)];
  for (size_t peer = 0; peer < run.ranks.size(); ++peer) {
    if (peer == run.mine) continue;
    const TensorView theirs = run.arrival(received_, round, peer), given = run.piece(round, peer);
    if (theirs.elements() > 0)
      PENSTOCK_RETURN_IF_ERROR(slot.post_receive(run.ranks[peer], theirs.data(), theirs.bytes()));
    if (given.elements() > 0)
      PENSTOCK_RETURN_IF_ERROR(slot.post_send(run.ranks[peer], given.data(), given.bytes()));
  }
  return ok_status();
}

void OrderedSum::add(const Run& run, int64_t round) {
  const TensorView mine = run.piece(round, run.mine);
  if (mine.elements() == 0) return;
  const auto of = [&](size_t rank) { return rank == run.mine ? mine : run.arrival(received_, round, rank); };
  const TensorView sum = of(0);
  for (size_t rank = 1; rank < run.ranks.size(); ++rank) {
    const bool is_last = rank + 1 == run.ranks.size();
    operators_->add(sum, of(rank), is_last ? mine : sum);
  }
}

Status OrderedSum::post_gather(const Run& run, int64_t round) {
  PendingTransfers& slot = gathers_[static_cast<size_t>(round % kInFlight)];
  const TensorView mine = run.piece(round, run.mine);
  for (size_t peer = 0; peer < run.ranks.size(); ++peer) {
    if (peer == run.mine) continue;
    const TensorView theirs = run.piece(round, peer);
    if (theirs.elements() > 0)
      PENSTOCK_RETURN_IF_ERROR(slot.post_receive(run.ranks[peer], theirs.data(), theirs.bytes()));
    if (mine.elements() > 0)
      PENSTOCK_RETURN_IF_ERROR(slot.post_send(run.ranks[peer], mine.data(), mine.bytes()));
  }
  return ok_status();
}

}  // namespace penstock::worker
