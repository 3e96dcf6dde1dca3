// What the layers of measured jobs cost, by type: typed least squares (plan/calibration) over the stage totals of all their
// runs. Runs at two sizes of microbatch, which are those of two jobs, give costs by tokens.
//
// Where stage totals cannot tell the embedding from the blocks (two stages and no other split: two sums, three unknowns)
// the embedding is taken as nothing, which it nearly is, and that is noted.
// Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/calibration/layer_times.h"
#include "plan/rebalancing/measured_run.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// The type of an item's costs: "embedding", "block", "block with experts", "block, recomputed", "head".
std::string cost_type_of(const JobSpec& job, const Item& item);
LayerCounts layer_counts(const JobSpec& job, const std::vector<Item>& items);

struct JobRuns {
  const JobSpec* job = nullptr;
  std::span<const MeasuredRun> runs;  // each as check_run() has it, of a split of the job's model
};

struct LayerFit {
  FittedTimes times;
  std::string note;  // "": none
};

// InvalidArgument: types of layers that cannot be told apart, with what would tell them.
StatusOr<LayerFit> fit_layers(const std::vector<JobRuns>& measured);

}  // namespace penstock::plan
