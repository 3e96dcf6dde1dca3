// One attempt of a job as its ranks measured it. Plain data.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/diagnosis/diagnose.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layer_type.h"

namespace penstock::plan {

// What one rank took for one of its stages. A sample is the median of a step's actions; [i] is the same step in both.
struct StageSamples {
  int rank = 0;                          // in the job
  std::vector<double> forward_seconds;   // oldest first
  std::vector<double> backward_seconds;  // both halves of a split one
};

// What a layer of one type took for one microbatch, in the steps that were traced: the median of those, and the lower median
// over the ranks of its stage.
struct LayerSamples {
  int stage = 0;
  LayerType type = LayerType::Block;
  double forward_seconds = 0;
  double backward_seconds = 0;
  int64_t steps = 1;  // that were traced, on the rank that has the fewest
  double least_seconds =
      0;  // forward and backward, each in the step in which it was shortest, of the fastest rank
};

struct MeasuredRun {
  std::string schedule;
  Split split;
  std::vector<std::vector<StageSamples>> stages;  // [stage], one for every rank that holds it
  std::vector<double> step_seconds;               // whole steps, oldest first
  std::vector<double> optimizer_seconds;          // [rank] medians; empty: not known
  std::vector<LayerSamples> layers{};             // those that were sampled
};

// InvalidArgument names the stage: as many as the split has, each with as many forwards as backwards, all above 0; layers of
// a stage that is not there, or with times below 0.
Status check_run(const MeasuredRun& run);

// Medians over steps and the lower one over the ranks of a stage, so that one slow rank does not speak for it.
double forward_seconds(const std::vector<StageSamples>& stage);
double backward_seconds(const std::vector<StageSamples>& stage);
double step_seconds(const MeasuredRun& run);
// Steps of the stage that was measured least.
int64_t measured_steps(const MeasuredRun& run);

// The older and the newer half of the steps.
std::vector<MeasuredRun> halves_of(const MeasuredRun& run);

// diagnose.h, with the ranks of a stage as its replicas; of one pipeline, a straggler is told by the single layers that were
// sampled (slow_worker.h).
StatusOr<Diagnosis> diagnose_run(const MeasuredRun& run);

}  // namespace penstock::plan
