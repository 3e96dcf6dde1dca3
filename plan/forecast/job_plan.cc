#include "plan/forecast/job_plan.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "plan/interop/planning_json.h"
#include "plan/rebalancing/layer_fit.h"
#include "plan/schedule/families.h"
#include "plan/simulation/costs.h"
#include "plan/spec/schedule_source.h"

namespace penstock::plan {
namespace {

// A name that needs no program beside it, or one that has it.
bool has_program(const JobSpec& job) {
  return !job.parallel.program.empty() || known_schedule(job.parallel.schedule) == Known::Built;
}

// How a search for the job's schedule goes.
Status add_search(const JobSpec& job, const JobPlanningOptions& options, PlanningRequest& request) {
  const ScheduleOptions& said = job.parallel.schedule_options;
  request.start_search = options.search;
  const bool is_searched = is_searched_schedule(job.parallel.schedule);
  if (said.memory_limit > 0 || (is_searched && request.budget_bytes.empty()))
    request.search_limit = said.memory_limit;
  if (said.costs == ScheduleOptions().costs) return ok_status();
  const StatusOr<UniformCosts> costs = parse_uniform_costs(join(said.costs, ","));
  if (!costs.ok()) return with_context(costs.status(), place_of(job, "parallel.schedule_options.costs"));
  request.search_costs = costs->stage;
  return ok_status();
}

// The plan of a split that stays.
StatusOr<PlanningAnswer> answer_of_split(const PlanningRequest& request, const Split& split) {
  PlanningAnswer answer;
  for (const ScheduleChoice& choice : request.among) {
    StatusOr<PlannedStep> step = simulate_split(request, choice, boundaries_of(split));
    if (step.ok()) {
      answer.plans.push_back(*std::move(step));
    } else {
      answer.left_out.push_back({choice, message(step.status())});
    }
  }
  return answer;
}

PlanningAnswer not_reached() {
  PlanningAnswer answer;
  answer.is_cut_short = true;
  return answer;
}

std::vector<JobSpec> by_microbatches(std::vector<JobSpec> jobs) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const JobSpec& a, const JobSpec& b) { return a.microbatches() < b.microbatches(); });
  return jobs;
}

bool is_faster(const PlannedJobSize& a, const PlannedJobSize& b) {
  if (a.answer.plans.empty() || b.answer.plans.empty())
    return !a.answer.plans.empty() && b.answer.plans.empty();
  return a.answer.plans.front().step_ns < b.answer.plans.front().step_ns;
}

}  // namespace

StatusOr<PlanningRequest> planning_request(const JobSpec& job, const LayerCostModel& model,
                                           const JobPlanningOptions& options) {
  JobSpec counted = job;
  if (options.recomputation == Recomputation::Planned) counted.recompute.clear();
  PENSTOCK_ASSIGN_OR_RETURN(JobCosts costs, model.costs(counted));
  PENSTOCK_RETURN_IF_ERROR(complete_bytes(counted, options.recomputation, costs.layers));
  PlanningRequest request;
  request.layers = std::move(costs.layers.layers);
  request.forward_ns = std::move(costs.layers.forward_ns);
  request.update_ns = std::move(costs.layers.update_ns);
  request.updates_wait = updates_wait(job);
  request.split_backward_bytes = std::move(costs.layers.split_backward_bytes);
  request.rank_bytes = costs.layers.rank_bytes;
  request.rank_speed = std::move(costs.layers.rank_speed);
  request.ranks = job.parallel.pipeline;
  request.microbatches = static_cast<int>(job.microbatches());
  request.asked = {job.parallel.schedule, job.parallel.stages_per_rank};
  if (has_program(job)) {
    PENSTOCK_ASSIGN_OR_RETURN(request.program, compute_program(job));
  }
  request.among = options.among.empty() ? std::vector{request.asked} : options.among;
  request.latency_ns = options.latency_ns.value_or(costs.latency_ns);
  if (options.has_budget) {
    if (job.memory_budget_bytes > 0) request.budget_bytes = {job.memory_budget_bytes};
    if (!options.budget_bytes.empty()) request.budget_bytes = options.budget_bytes;
  }
  if (request.budget_bytes
          .empty()) {  // nothing recomputes then, and the split is found faster without that choice
    for (LayerCost& layer : request.layers) layer.recompute.reset();
  }
  request.keep_going = options.keep_going;
  request.only_plans = options.only_plans;
  PENSTOCK_RETURN_IF_ERROR(add_search(job, options, request));
  return request;
}

StatusOr<std::vector<PlannedJobSize>> plan_sizes(const std::vector<JobSpec>& jobs,
                                                 const LayerCostModel& model,
                                                 const JobPlanningOptions& options) {
  if (jobs.size() > 1 && !model.one_size.empty()) {
    return invalid_argument(
        "train.microbatch_size: auto needs costs of any size of microbatch, and {}; or write a number",
        model.one_size);
  }
  std::vector<PlannedJobSize> sizes;
  bool has_plan = false;
  for (const JobSpec& job : by_microbatches(jobs)) {
    if (has_plan && options.keep_going && !options.keep_going()) {
      sizes.push_back({job, {}, not_reached()});
      continue;
    }
    PENSTOCK_ASSIGN_OR_RETURN(PlanningRequest request, planning_request(job, model, options));
    PENSTOCK_ASSIGN_OR_RETURN(PlanningAnswer answer, options.keeps_split
                                                         ? answer_of_split(request, job.parallel.split)
                                                         : plan_training(request));
    has_plan = has_plan || !answer.plans.empty();
    sizes.push_back({job, std::move(request), std::move(answer)});
  }
  std::reverse(sizes.begin(), sizes.end());
  std::stable_sort(sizes.begin(), sizes.end(), is_faster);
  return sizes;
}

}  // namespace penstock::plan
