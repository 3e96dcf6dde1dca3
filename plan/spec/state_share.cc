#include "plan/spec/state_share.h"

#include <algorithm>
#include <set>

namespace penstock::plan {
namespace {

// The parameters among `ranks` ranks, the largest first, each to the rank with the fewest elements so far.
void share_out(const std::vector<ParameterSpec>& held, std::vector<size_t> parameters, int ranks,
               std::vector<StateShare>& shares) {
  std::stable_sort(parameters.begin(), parameters.end(),
                   [&](size_t a, size_t b) { return held[a].elements() > held[b].elements(); });
  std::set<std::pair<int64_t, int>> loads;  // elements, rank
  for (int rank = 0; rank < ranks; ++rank) loads.emplace(0, rank);
  for (const size_t parameter : parameters) {
    const auto [elements, rank] = *loads.begin();
    loads.erase(loads.begin());
    loads.emplace(elements + held[parameter].elements(), rank);
    shares[parameter].owner = RankIndex(rank);
  }
}

void shard_moments(const JobSpec& job, const RankPlace& place, const std::vector<ParameterSpec>& held,
                   std::vector<StateShare>& shares) {
  std::vector<size_t> dense, experts;
  for (size_t i = 0; i < held.size(); ++i) (held[i].is_dense() ? dense : experts).push_back(i);
  share_out(held, dense, job.parallel.pipelines(), shares);
  share_out(held, experts, job.parallel.data, shares);
  for (size_t i = 0; i < held.size(); ++i) {
    const RankIndex here(held[i].is_dense() ? place.pipeline : place.data_rank);
    shares[i].has_moments = shares[i].writes_moments = shares[i].owner == here;
  }
}

}  // namespace

std::vector<StateShare> state_shares(const JobSpec& job, const RankPlace& place,
                                     const std::vector<ParameterSpec>& held) {
  std::vector<StateShare> shares(held.size());
  for (size_t i = 0; i < held.size(); ++i) {
    shares[i].writes_weight = held[i].is_dense() ? place.pipeline == 0 : place.data_rank == 0;
    shares[i].writes_moments = shares[i].writes_weight;
  }
  if (job.parallel.shard_optimizer) shard_moments(job, place, held, shares);
  return shares;
}

}  // namespace penstock::plan
