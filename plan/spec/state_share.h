// What of a parameter's state stands, or is written, on one only of the ranks that hold the parameter (rank_place.h).
//
//     weights    on all of them; pipeline 0 writes them, and those of experts the ranks with data_rank 0
//     moments    on all of them, and written with the weight. With parallel.shard_optimizer (ZeRO-1) on one rank alone, which
//                writes them: of the data group, for an expert of the expert-data group. Each takes the largest that is
//                left when it has the fewest bytes, so the same parameters are always shared out alike
//
// Pure; any thread.
#pragma once

#include <vector>

#include "base/ids.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/parameters.h"
#include "plan/spec/rank_place.h"

namespace penstock::plan {

struct StateShare {
  RankIndex owner{};  // of the moments, in the parameter's group; unset where they stand on all its ranks
  bool has_moments = true;
  bool writes_weight = true;
  bool writes_moments = true;
};

// Beside `held`, which are all parameters of the rank at `place`.
std::vector<StateShare> state_shares(const JobSpec& job, const RankPlace& place,
                                     const std::vector<ParameterSpec>& held);

}  // namespace penstock::plan
