// The groups in which the ranks of a job meet (rank_place.h), by the names that the broker knows them by:
//
//     pipeline N          the ranks of pipeline N
//     data P              those with pipeline_rank P
//     expert-model P.D    of these, those with data_rank D
//     expert-data P.E     of these, those with expert_rank E
//
// A rank's number in a group is its place in `ranks`, which ascend. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

struct RankGroup {
  std::string name{};
  std::vector<RankIndex> ranks{};  // of the job

  // The rank's number in the group; unset where it is not in it.
  RankIndex member(RankIndex rank) const;
};

RankGroup pipeline_group(const ParallelSpec& parallel, int pipeline);
RankGroup data_group(const ParallelSpec& parallel, RankIndex pipeline_rank);
RankGroup expert_model_group(const ParallelSpec& parallel, RankIndex pipeline_rank, int data_rank);
RankGroup expert_data_group(const ParallelSpec& parallel, RankIndex pipeline_rank, int expert_rank);

// InvalidArgument: the job has no group of that name. "pipeline" is pipeline 0 where there is one pipeline.
StatusOr<RankGroup> group_named(const ParallelSpec& parallel, const std::string& name);

}  // namespace penstock::plan
