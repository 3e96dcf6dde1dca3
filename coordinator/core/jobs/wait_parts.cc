#include "coordinator/core/jobs/wait_parts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "plan/schedule/dataflow.h"
#include "plan/spec/rank_place.h"

namespace penstock::coordinator {
namespace {

constexpr int64_t kFarthestApart = int64_t{1} << 60;  // so that sums of times do not overflow

// When the tensor of a passage was there to be sent, by pipeline: microbatches are numbered in each.
using Produced = std::map<std::pair<int, plan::Passage>, int64_t>;

// From rank 0's begin to this one's.
int64_t offset_of(const StepTrace& first, const StepTrace& rank) {
  return first.clock == rank.clock ? rank.monotonic_ns - first.monotonic_ns : rank.unix_ns - first.unix_ns;
}

}  // namespace

std::vector<WaitParts> wait_parts(const std::vector<StepTrace>& ranks, const plan::ParallelSpec& parallel,
                                  int stages) {
  std::vector<int64_t> offsets;
  for (const StepTrace& rank : ranks) {
    offsets.push_back(offset_of(ranks.front(), rank));
    if (offsets.back() > kFarthestApart || offsets.back() < -kFarthestApart) return {};
  }
  const auto pipeline_of = [&](size_t rank) {
    return plan::place_of_rank(parallel, RankIndex(static_cast<int64_t>(rank))).pipeline;
  };
  Produced produced;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const TracedWork& traced : ranks[rank].works) {
      if (const auto passage = plan::outgoing(traced.work, stages))
        produced[{pipeline_of(rank), *passage}] = offsets[rank] + traced.end_ns;
    }
  }
  std::vector<WaitParts> parts(ranks.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const TracedWait& wait : ranks[rank].waits) {
      const auto tensor =
          produced.find({pipeline_of(rank), plan::passage_into(wait.stage, wait.microbatch, wait.flow)});
      if (tensor == produced.end()) continue;
      const int64_t start = offsets[rank] + wait.start_ns, end = offsets[rank] + wait.end_ns;
      const int64_t sent = std::clamp(tensor->second, start, end);
      parts[rank].dependency_ns += sent - start;
      parts[rank].transfer_ns += end - sent;
    }
  }
  return parts;
}

}  // namespace penstock::coordinator
