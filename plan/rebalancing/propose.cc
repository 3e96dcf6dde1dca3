#include "plan/rebalancing/propose.h"

#include <algorithm>
#include <cmath>

#include "plan/interop/job_profile.h"
#include "plan/interop/planning_json.h"
#include "plan/rebalancing/layer_fit.h"
#include "plan/spec/cost_source.h"
#include "plan/spec/same_training.h"
#include "plan/spec/schedule_source.h"
#include "plan/spec/split_source.h"

namespace penstock::plan {
namespace {

StatusOr<LayerFit> fit(const JobSpec& job, const std::vector<MeasuredRun>& runs) {
  return fit_layers({{.job = &job, .runs = runs}});
}

double total_ms(const JobSpec& job, const FittedTimes& times, const std::vector<Item>& items) {
  const StatusOr<StageTime> stage = predict_stage(times, layer_counts(job, items));
  return stage.ok() ? stage->total_ms() : 0;
}

int64_t in_ns(double ms) {
  return std::llround(1e6 * ms);
}

StatusOr<PlanningRequest> request_of(const JobSpec& job, const FittedTimes& fitted, const MeasuredRun& run) {
  std::vector<ItemTime> times;
  for (const Item& item : model_items(job.model)) {
    PENSTOCK_ASSIGN_OR_RETURN(const StageTime time, predict_stage(fitted, layer_counts(job, {item})));
    times.push_back({in_ns(time.forward_ms), in_ns(time.backward_ms)});
  }
  LayerCosts costs = layers_of(job, times);
  PENSTOCK_RETURN_IF_ERROR(predict_bytes(job, costs));
  add_update(update_ns_per_byte(run, job, costs), costs, costs);
  PlanningRequest request;
  request.layers = std::move(costs.layers);
  request.forward_ns = std::move(costs.forward_ns);
  request.update_ns = std::move(costs.update_ns);
  request.updates_wait = updates_wait(job);
  request.split_backward_bytes = std::move(costs.split_backward_bytes);
  request.ranks = job.parallel.pipeline;
  request.microbatches = static_cast<int>(job.microbatches());
  request.asked = {job.parallel.schedule, job.parallel.stages_per_rank};
  request.among = {request.asked};
  request.only_plans = true;
  PENSTOCK_ASSIGN_OR_RETURN(request.program, compute_program(job));
  if (job.memory_budget_bytes > 0) request.budget_bytes = job.memory_budget_bytes;
  request.latency_ns =
      std::min<int64_t>(job.device.costs.latency_ns + job.device.costs.message_ns, 1'000'000'000);
  return request;
}

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

// This split's step, whether it fits its budget or not: it runs.
StatusOr<double> simulated_seconds(PlanningRequest request, const Split& split) {
  request.budget_bytes.reset();
  PENSTOCK_ASSIGN_OR_RETURN(const PlannedStep step,
                            simulate_split(request, request.asked, boundaries_of(split)));
  return static_cast<double>(step.step_ns) / 1e9;
}

// Halves of the newest run whose own costs find the best split faster too.
StatusOr<int> halves_that_agree(const JobSpec& job, const std::vector<MeasuredRun>& runs, const Split& best) {
  int agreeing = 0;
  for (const MeasuredRun& half : halves_of(runs.back())) {
    std::vector<MeasuredRun> others(runs.begin(), runs.end() - 1);
    others.push_back(half);
    PENSTOCK_ASSIGN_OR_RETURN(const LayerFit fitted, fit(job, others));
    PENSTOCK_ASSIGN_OR_RETURN(const PlanningRequest request, request_of(job, fitted.times, half));
    PENSTOCK_ASSIGN_OR_RETURN(const double now, simulated_seconds(request, half.split));
    PENSTOCK_ASSIGN_OR_RETURN(const double then, simulated_seconds(request, best));
    agreeing += then < now;
  }
  return agreeing;
}

// --- the proposal.

Status check(const JobSpec& job, const std::vector<MeasuredRun>& runs) {
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

void add_figures(const JobSpec& job, const MeasuredRun& run, Proposal& proposal) {
  for (size_t stage = 0; stage < run.stages.size(); ++stage) {
    const double seconds = forward_seconds(run.stages[stage]) + backward_seconds(run.stages[stage]);
    proposal.stages.push_back({1e3 * seconds, total_ms(job, proposal.costs, run.split[stage])});
  }
  for (const auto& items : proposal.best) proposal.best_ms.push_back(total_ms(job, proposal.costs, items));
}

// A worker that is slow is not helped by other layers.
void heed_diagnosis(const MeasuredRun& run, Proposal& proposal) {
  const StatusOr<Diagnosis> diagnosis = diagnose_run(run);
  if (!diagnosis.ok()) return;
  if (diagnosis->finding == Finding::DataVariance) proposal.notes.push_back(diagnosis->because);
  if (diagnosis->finding != Finding::Straggler) return;
  proposal.answer.move = false;
  proposal.answer.because = diagnosis->because + ": " + diagnosis->advice;
}

// Else what came of it is not the split's doing.
bool differ_by_split_alone(const MeasuredRun& before, const MeasuredRun& after) {
  return before.split != after.split && before.split.size() == after.split.size() &&
         before.schedule == after.schedule && before.stages[0].size() == after.stages[0].size();
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

StatusOr<Proposal> propose(const JobSpec& job, const std::vector<MeasuredRun>& runs,
                           const ProposalOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(check(job, runs));
  const MeasuredRun& run = runs.back();
  PENSTOCK_ASSIGN_OR_RETURN(LayerFit fitted, fit(job, runs));
  PENSTOCK_ASSIGN_OR_RETURN(PlanningRequest request, request_of(job, fitted.times, run));
  request.current_rank = current_ranks(request, run.split);
  Proposal proposal;
  proposal.now = run.split;
  proposal.costs = std::move(fitted.times);
  if (!fitted.note.empty()) proposal.notes.push_back(std::move(fitted.note));
  PENSTOCK_ASSIGN_OR_RETURN(const PlannedStep best, best_plan(request, proposal));
  PENSTOCK_ASSIGN_OR_RETURN(proposal.modelled_step_seconds, simulated_seconds(request, run.split));
  const double best_seconds = static_cast<double>(best.step_ns) / 1e9;
  const bool faster = best_seconds < proposal.modelled_step_seconds;
  proposal.best = faster ? split_of(job.model, best.partition.boundaries) : run.split;
  proposal.best_rank_bytes = best.partition.rank_bytes;
  proposal.step_seconds = step_seconds(run);
  const double measured_to_modelled = proposal.step_seconds / proposal.modelled_step_seconds;
  proposal.best_step_seconds =
      measured_to_modelled * (faster ? best_seconds : proposal.modelled_step_seconds);
  proposal.model_error =
      std::abs(proposal.modelled_step_seconds - proposal.step_seconds) / proposal.step_seconds;
  add_figures(job, run, proposal);
  if (!proposal.changes()) {
    proposal.answer.because = "the split is the best that the model knows";
    heed_diagnosis(run, proposal);
    return proposal;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const int agreeing, halves_that_agree(job, runs, proposal.best));
  proposal.answer = should_move({.current_step_seconds = proposal.step_seconds,
                                 .best_step_seconds = proposal.best_step_seconds,
                                 .model_error = std::max(options.least_error, proposal.model_error),
                                 .samples = measured_steps(run) * job.microbatches(),
                                 .samples_min = options.samples_min,
                                 .steps_left = options.steps_left,
                                 .move_seconds = options.move_seconds,
                                 .runs_that_agree = agreeing});
  heed_diagnosis(run, proposal);
  return proposal;
}

StatusOr<std::string> with_proposed_split(const JobSpec& job, const Split& split) {
  if (split != job.parallel.split) PENSTOCK_RETURN_IF_ERROR(can_move_layers(job));
  return with_split(job.yaml, split);
}

PlannedStages planned_stages(const JobSpec& job, const std::vector<MeasuredRun>& runs) {
  PlannedStages planned;
  const MeasuredRun& run = runs.back();
  std::vector<MeasuredRun> earlier;
  for (const MeasuredRun& each : runs) {
    if (each.split != run.split) earlier.push_back(each);
  }
  const StatusOr<LayerFit> fitted =
      earlier.empty() ? StatusOr<LayerFit>(not_found("no other split")) : fit(job, earlier);
  planned.from_costs = fitted.ok();
  double sum = 0;
  for (const auto& stage : run.stages) sum += 1e3 * (forward_seconds(stage) + backward_seconds(stage));
  for (const auto& items : run.split) {
    planned.ms.push_back(fitted.ok() ? total_ms(job, fitted->times, items)
                                     : sum / static_cast<double>(run.stages.size()));
  }
  return planned;
}

StatusOr<std::optional<MoveCheck>> check_last_move(const JobSpec& job, const std::vector<MeasuredRun>& runs) {
  PENSTOCK_RETURN_IF_ERROR(check(job, runs));
  const auto has_another = [&](const MeasuredRun& run) { return run.split != runs.back().split; };
  const auto last = std::find_if(runs.rbegin(), runs.rend(), has_another);
  if (last == runs.rend() || !differ_by_split_alone(*last, runs.back())) return std::nullopt;
  const std::vector<MeasuredRun> before(runs.begin(), last.base());
  PENSTOCK_ASSIGN_OR_RETURN(const LayerFit fitted, fit(job, before));
  PENSTOCK_ASSIGN_OR_RETURN(const PlanningRequest request, request_of(job, fitted.times, before.back()));
  PENSTOCK_ASSIGN_OR_RETURN(const double then, simulated_seconds(request, before.back().split));
  PENSTOCK_ASSIGN_OR_RETURN(const double now, simulated_seconds(request, runs.back().split));
  return MoveCheck{before.back().split, should_keep({.before_step_seconds = step_seconds(before.back()),
                                                     .after_step_seconds = step_seconds(runs.back()),
                                                     .predicted_gain = 1 - now / then})};
}

}  // namespace penstock::plan
