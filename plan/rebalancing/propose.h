// The split that a job should have had, from what its stages took: the decision of `penstock rebalance`.
//
//   1. layer costs      typed least squares over the stage totals of all measured splits (plan/calibration)
//   2. the best split   exact, within the memory budget, with the in-flight counts of the job's own program
//                       (plan/partition), then handed on layer by layer while its simulation gets faster (plan/planning)
//   3. its step         what the simulation says of the best split, times what was measured over what it says of this one;
//                       from step to step, as every rank updates its layers once all gradients are there
//   4. move or stay     plan/diagnosis/should_move: both halves of the measured steps must agree, and the gain must exceed
//                       the model's error. A split that ran before and brought less than half of that is not proposed again,
//                       nor one that some rank has no memory for.
//
// Schedule, stages a rank, microbatches and everything else stay: the losses keep every bit. What the optimizer took is shared
// out over the layers by their bytes. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/calibration/layer_times.h"
#include "plan/diagnosis/should_move.h"
#include "plan/planning/planner.h"
#include "plan/rebalancing/measured_run.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

struct ProposalOptions {
  int64_t steps_left = 0;
  double move_seconds = 0;    // restart and reshard, as measured
  double least_error = 0.04;  // of the model, where its error on this run is smaller
  int64_t samples_min = 100;  // actions of the least measured stage
};

struct StageFigures {
  double measured_ms = 0;  // forward and backward of a microbatch, now
  double modelled_ms = 0;  // the same from the layer costs
};

struct Proposal {
  Split now;
  Split best;
  std::vector<StageFigures> stages;  // of `now`
  std::vector<double> best_ms;       // of every stage of `best`, from the layer costs
  double step_seconds = 0;           // measured
  double modelled_step_seconds = 0;  // simulated, of `now`
  double best_step_seconds = 0;      // predicted
  double model_error = 0;            // part of the measured step
  FittedTimes costs;
  MoveAnswer answer;
  std::optional<OversizedLayer> oversized;
  std::vector<std::string> notes;

  bool changes() const { return now != best; }
};

// FailedPrecondition, with the reason, where no other split is worth a thought: one stage, stages on two ranks each, costs of
// emulated devices by stage, or weight versions that differ by stage, so that bits do.
Status can_move_layers(const JobSpec& job);

// InvalidArgument: no runs, or one that is none. FailedPrecondition: as can_move_layers(), or the last run is of another split
// than the job's.
Status check_runs(const JobSpec& job, const std::vector<MeasuredRun>& runs);
// Of its least measured stage: microbatches.
int64_t samples_of(const JobSpec& job, const MeasuredRun& run);
// Else what one took less than the other is not the split's doing: another schedule, other ranks.
bool differ_by_split_alone(const MeasuredRun& a, const MeasuredRun& b);

// Costs from all runs, oldest first; the last one is of the job's split. InvalidArgument: a run that is none, or types of
// layers that cannot be told apart, with what would tell them. FailedPrecondition: as can_move_layers(), or no split fits the
// budget.
StatusOr<Proposal> propose(const JobSpec& job, const std::vector<MeasuredRun>& runs,
                           const ProposalOptions& options = {});

// The job's file with another split (plan/spec/split_source), as it is accepted: parsed again, and within its memory budget as
// every rank counts it. FailedPrecondition: as can_move_layers(). InvalidArgument: the rank that would hold too much, by kind.
StatusOr<std::string> with_proposed_split(const JobSpec& job, const Split& split);

}  // namespace penstock::plan
