#include "plan/rebalancing/propose.h"

#include <algorithm>
#include <cmath>

#include "plan/cost/memory.h"
#include "plan/interop/planned_job.h"
#include "plan/interop/planning_json.h"
#include "plan/rebalancing/split_model.h"
#include "plan/spec/cost_source.h"
#include "plan/spec/same_training.h"
#include "plan/spec/schedule_source.h"
#include "plan/spec/split_source.h"

namespace penstock::plan {
namespace {

// --- splits.

// So that of equal splits the one that moves least is taken.
std::vector<int> current_ranks(const PlanningRequest& request, const Split& split) {
  std::vector<int> ranks;
  for (size_t stage = 0; stage < split.size(); ++stage) {
    const std::vector<RankIndex>& held_by = request.program->placement[stage];
    ranks.insert(ranks.end(), split[stage].size(), static_cast<int>(held_by.front().value));
  }
  return ranks;
}

// Halves of the newest run whose own costs find the best split faster too.
StatusOr<int> halves_that_agree(const JobSpec& job, const std::vector<MeasuredRun>& runs, const Split& best) {
  int agreeing = 0;
  for (const MeasuredRun& half : halves_of(runs.back())) {
    std::vector<MeasuredRun> others(runs.begin(), runs.end() - 1);
    others.push_back(half);
    PENSTOCK_ASSIGN_OR_RETURN(const LayerFit fitted, fit_runs(job, others));
    PENSTOCK_ASSIGN_OR_RETURN(const PlanningRequest request, split_request(job, fitted.times, half));
    PENSTOCK_ASSIGN_OR_RETURN(const double now, simulated_seconds(request, half.split));
    PENSTOCK_ASSIGN_OR_RETURN(const double then, simulated_seconds(request, best));
    agreeing += then < now;
  }
  return agreeing;
}

// --- the proposal.

StatusOr<PlannedStep> best_plan(const PlanningRequest& request, Proposal& proposal) {
  PENSTOCK_ASSIGN_OR_RETURN(const PlanningAnswer answer, plan_training(request));
  proposal.oversized = answer.oversized;
  if (!answer.plans.empty()) return answer.plans.front();
  if (answer.smallest_budget) {
    return failed_precondition("no split fits the memory budget; the smallest that works is {} bytes",
                               *answer.smallest_budget);
  }
  return failed_precondition("schedule {}: {}", request.asked.schedule,
                             answer.left_out.empty() ? "no split" : answer.left_out.front().reason);
}

// As training counts it, on every rank.
Status check_memory(const std::string& yaml) {
  PENSTOCK_ASSIGN_OR_RETURN(const JobSpec job, parse_job_spec(yaml));
  if (job.memory_budget_bytes == 0) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<MemoryPrediction> ranks, memory_of_job(job));
  return check_memory_budget(job, ranks);
}

void add_figures(const JobSpec& job, const MeasuredRun& run, Proposal& proposal) {
  for (size_t stage = 0; stage < run.stages.size(); ++stage) {
    const double seconds = forward_seconds(run.stages[stage]) + backward_seconds(run.stages[stage]);
    proposal.stages.push_back({1e3 * seconds, stage_ms(job, proposal.costs, run.split[stage])});
  }
  for (const auto& items : proposal.best) proposal.best_ms.push_back(stage_ms(job, proposal.costs, items));
}

// A worker that is slow is not helped by other layers.
void heed_diagnosis(const MeasuredRun& run, Proposal& proposal) {
  const StatusOr<Diagnosis> diagnosis = diagnose_run(run);
  if (!diagnosis.ok()) return;
  const bool wait_for_worker = diagnosis->main().finding == Finding::Straggler;
  for (const Judgement& verdict : diagnosis->verdicts) {
    const bool is_answer = wait_for_worker && &verdict == &diagnosis->main();
    if (is_answer || verdict.finding == Finding::Balanced || verdict.finding == Finding::Imbalance) continue;
    proposal.notes.push_back(fmt::format("{}: {}", name_of(verdict.finding), verdict.because));
  }
  if (!wait_for_worker) return;
  proposal.answer.move = false;
  proposal.answer.because = diagnosis->main().because + ": " + diagnosis->main().advice;
}

// What a split brought when it ran speaks louder than what the model says of it: a move that was undone is not made again.
void heed_earlier_runs(const JobSpec& job, const std::vector<MeasuredRun>& runs, int64_t samples_min,
                       Proposal& proposal) {
  const auto is_of_best = [&](const MeasuredRun& run) {
    return run.split == proposal.best && differ_by_split_alone(run, runs.back()) &&
           samples_of(job, run) >= samples_min;
  };
  const auto earlier = std::find_if(runs.rbegin(), runs.rend(), is_of_best);
  if (!proposal.answer.move || earlier == runs.rend()) return;
  const MoveAnswer brought = should_keep({.before_step_seconds = proposal.step_seconds,
                                          .after_step_seconds = step_seconds(*earlier),
                                          .predicted_gain = proposal.answer.predicted_gain});
  if (brought.move) return;
  proposal.answer.move = false;
  proposal.answer.because = "the best split that the model knows ran before: " + brought.because;
}

// The request bounds what a rank holds: here it is counted.
void heed_memory(const JobSpec& job, Proposal& proposal) {
  if (!proposal.answer.move) return;
  const StatusOr<std::string> file = with_proposed_split(job, proposal.best);
  if (file.ok()) return;
  proposal.answer.move = false;
  proposal.answer.because = "the best split that the model knows is refused: " + message(file.status());
}

StatusOr<MoveAnswer> answer_of(const JobSpec& job, const std::vector<MeasuredRun>& runs,
                               const ProposalOptions& options, const Proposal& proposal) {
  if (!proposal.changes()) return MoveAnswer{.because = "the split is the best that the model knows"};
  PENSTOCK_ASSIGN_OR_RETURN(const int agreeing, halves_that_agree(job, runs, proposal.best));
  return should_move({.current_step_seconds = proposal.step_seconds,
                      .best_step_seconds = proposal.best_step_seconds,
                      .model_error = std::max(options.least_error, proposal.model_error),
                      .samples = samples_of(job, runs.back()),
                      .samples_min = options.samples_min,
                      .steps_left = options.steps_left,
                      .move_seconds = options.move_seconds,
                      .runs_that_agree = agreeing});
}

}  // namespace

Status can_move_layers(const JobSpec& job) {
  if (job.stages() == 1) return failed_precondition("the job has one stage: there is nothing to move");
  if (!keeps_bits_under_any_split(job)) {
    return failed_precondition(
        "schedule {}: each stage has weight versions of its own: under another split the losses would change",
        job.parallel.schedule);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const ComputeProgram program, compute_program(job));
  const auto is_on_two = [](const std::vector<RankIndex>& ranks) { return ranks.size() > 1; };
  if (std::any_of(program.placement.begin(), program.placement.end(), is_on_two))
    return failed_precondition("schedule {}: holds stages on two ranks each", job.parallel.schedule);
  if (!job.device.emulated()) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<EmulatedCosts::Stage> costs, costs_of_layers(job));
  if (!costs.empty()) return ok_status();
  return failed_precondition(
      "{}: expected costs by layer ({{layers: {{embedding: ..., block: ..., head: ...}}}}), found costs by stage, which no "
      "split changes",
      place_of(job, "device.costs"));
}

Status check_runs(const JobSpec& job, const std::vector<MeasuredRun>& runs) {
  if (runs.empty()) return invalid_argument("measured runs: expected at least one");
  for (const MeasuredRun& run : runs) {
    PENSTOCK_RETURN_IF_ERROR(check_run(run));
    PENSTOCK_RETURN_IF_ERROR(check_split(job.model, run.split));
  }
  PENSTOCK_RETURN_IF_ERROR(can_move_layers(job));
  if (runs.back().split != job.parallel.split)
    return failed_precondition("the job's present split has not been measured yet");
  return ok_status();
}

int64_t samples_of(const JobSpec& job, const MeasuredRun& run) {
  return measured_steps(run) * job.microbatches();
}

bool differ_by_split_alone(const MeasuredRun& a, const MeasuredRun& b) {
  return a.split != b.split && a.split.size() == b.split.size() && a.schedule == b.schedule &&
         a.stages[0].size() == b.stages[0].size();
}

StatusOr<Proposal> propose(const JobSpec& job, const std::vector<MeasuredRun>& runs,
                           const ProposalOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(check_runs(job, runs));
  const MeasuredRun& run = runs.back();
  PENSTOCK_ASSIGN_OR_RETURN(LayerFit fitted, fit_runs(job, runs));
  PENSTOCK_ASSIGN_OR_RETURN(PlanningRequest request, split_request(job, fitted.times, run));
  request.current_rank = current_ranks(request, run.split);
  request.current_split = boundaries_of(run.split);
  Proposal proposal;
  proposal.now = run.split;
  proposal.costs = std::move(fitted.times);
  if (!fitted.note.empty()) proposal.notes.push_back(std::move(fitted.note));
  PENSTOCK_ASSIGN_OR_RETURN(const PlannedStep best, best_plan(request, proposal));
  PENSTOCK_ASSIGN_OR_RETURN(proposal.modelled_step_seconds, simulated_seconds(request, run.split));
  const double best_seconds = static_cast<double>(best.step_ns) / 1e9;
  const bool faster = best_seconds < proposal.modelled_step_seconds;
  proposal.best = faster ? split_of(job.model, best.partition.boundaries) : run.split;
  proposal.step_seconds = step_seconds(run);
  const double measured_to_modelled = proposal.step_seconds / proposal.modelled_step_seconds;
  proposal.best_step_seconds =
      measured_to_modelled * (faster ? best_seconds : proposal.modelled_step_seconds);
  proposal.model_error =
      std::abs(proposal.modelled_step_seconds - proposal.step_seconds) / proposal.step_seconds;
  add_figures(job, run, proposal);
  PENSTOCK_ASSIGN_OR_RETURN(proposal.answer, answer_of(job, runs, options, proposal));
  heed_earlier_runs(job, runs, options.samples_min, proposal);
  heed_memory(job, proposal);
  heed_diagnosis(run, proposal);
  return proposal;
}

StatusOr<std::string> with_proposed_split(const JobSpec& job, const Split& split) {
  if (split == job.parallel.split) return with_split(job.yaml, split);
  PENSTOCK_RETURN_IF_ERROR(can_move_layers(job));
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, with_split(job.yaml, split));
  PENSTOCK_RETURN_IF_ERROR(check_memory(text));
  return text;
}

}  // namespace penstock::plan
