// What the layers of measured jobs cost, by type: typed least squares (plan/calibration) over the stage totals of all their
// runs, and the single layers that were sampled in traced steps, as shares of their stage's time. Runs at two sizes of
// microbatch, which are those of two jobs, give costs by tokens.
//
// Without such samples, where stage totals cannot tell the embedding from the blocks (two stages and no other split: two sums,
// three unknowns) the embedding is taken as nothing, which it nearly is, and that is noted. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/calibration/layer_times.h"
#include "plan/interop/layer_costs.h"
#include "plan/rebalancing/measured_run.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// The type of an item's costs, by name (plan/spec/layer_type.h).
std::string cost_type_of(const JobSpec& job, const Item& item);
LayerCounts layer_counts(const JobSpec& job, const std::vector<Item>& items);

struct JobRuns {
  const JobSpec* job = nullptr;
  std::span<const MeasuredRun> runs;  // each as check_run() has it, of a split of the job's model
};

struct LayerFit {
  FittedTimes times;
  std::string note;  // "": none
  // The first ones of the times' measurements; behind them stands what is taken as known.
  size_t measured = 0;
};

// InvalidArgument: types of layers that cannot be told apart, with what would tell them.
StatusOr<LayerFit> fit_layers(const std::vector<JobRuns>& measured);

// What the optimizer took of a step of the run, in nanoseconds a static byte of its job's layers: most of its time goes with the
// parameters, whose share of the bytes is the same everywhere. 0: not measured.
double update_ns_per_byte(const MeasuredRun& run, const JobSpec& job, const LayerCosts& bytes);
// Whether ranks update their layers once all of them have their gradients: in steps that are neither asynchronous nor
// post-validated.
bool updates_wait(const JobSpec& job);
// Says what of a step's update each layer takes. `bytes`: of the same layers, maybe `times` itself.
void add_update(double ns_per_byte, const LayerCosts& bytes, LayerCosts& times);

}  // namespace penstock::plan
