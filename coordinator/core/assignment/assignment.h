// From a job file to what each rank is told: generate the schedule, verify it, lower it, verify every rank's
// part.
//
// Pure, and slow for a big job: call it away from the core's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/core/views.h"
#include "plan/cost/memory.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

// One attempt's programs, one for each place in a pipeline (plan/spec/rank_place.h); what they are follows from the job
// file alone.
struct AttemptPlan {
  plan::LoweredProgram program{};
  plan::LoweredProgram validation{};    // forward-only; no ranks without validation
  std::vector<RankIndex> loss_ranks{};  // of the job, ascending, that hold the loss stage, found by identity
  std::vector<RankIndex> validation_loss_ranks{};  // the same of the validation
  std::vector<plan::MemoryPrediction> memory{};    // [rank]
};

// InvalidArgument: the schedule cannot be made for this shape, or does not verify, with rank, position and
// action.
StatusOr<std::shared_ptr<const AttemptPlan>> plan_attempt(const plan::JobSpec& spec);

struct CheckedJob {
  std::shared_ptr<const plan::JobSpec> spec{};
  SubmitOutcome outcome;  // its name is the one in the file
};

// Everything that can be said of a job file before it runs. InvalidArgument carries every problem, a line
// each.
StatusOr<CheckedJob> check_job(const std::string& yaml);
SubmitOutcome outcome_of(const plan::JobSpec& spec);
// Items of every stage: "embedding 0".
std::vector<std::string> stage_items(const plan::JobSpec& spec);

struct AssignmentRequest {
  AttemptKey attempt{};  // with the incarnation of the rank's worker
  RankIndex rank{};
  int device = 0;
  int64_t first_step = 0;
  std::string load_from{};
  std::vector<std::string> rank_hosts{};
  WeightsPlace weights{};
  WeightsPlace checkpoints{};
};
Assignment make_assignment(const plan::JobSpec& spec, const AttemptPlan& plan, AssignmentRequest request);

// What can be shown of the stages before a step has been measured: a row for each stage and each rank that has it.
// `workers` names each rank's worker.
std::vector<StageView> planned_stages(const plan::JobSpec& spec, const AttemptPlan& plan,
                                      const std::vector<std::string>& workers);
// What each rank is predicted to hold; [rank].
std::vector<RankMemoryView> planned_memory(const AttemptPlan& plan);

}  // namespace penstock::coordinator
