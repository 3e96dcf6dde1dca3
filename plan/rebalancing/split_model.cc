#include "plan/rebalancing/split_model.h"

#include <algorithm>
#include <cmath>

#include "plan/interop/job_profile.h"
#include "plan/interop/planning_json.h"
#include "plan/spec/cost_source.h"
#include "plan/spec/schedule_source.h"

namespace penstock::plan {
namespace {

constexpr int64_t kLatencyNsMax = 1'000'000'000;

int64_t in_ns(double ms) {
  return std::llround(1e6 * ms);
}

StatusOr<LayerCosts> layer_costs(const JobSpec& job, const FittedTimes& fitted, const MeasuredRun& run) {
  std::vector<ItemTime> times;
  for (const Item& item : model_items(job.model)) {
    PENSTOCK_ASSIGN_OR_RETURN(const StageTime time, predict_stage(fitted, layer_counts(job, {item})));
    times.push_back({in_ns(time.forward_ms), in_ns(time.backward_ms)});
  }
  LayerCosts costs = layers_of(job, times);
  PENSTOCK_RETURN_IF_ERROR(complete_bytes(job, Recomputation::AsWritten, costs));
  add_update(update_ns_per_byte(run, job, costs), costs, costs);
  return costs;
}

}  // namespace

StatusOr<LayerFit> fit_runs(const JobSpec& job, const std::vector<MeasuredRun>& runs) {
  return fit_layers({{.job = &job, .runs = runs}});
}

double stage_ms(const JobSpec& job, const FittedTimes& times, const std::vector<Item>& items) {
  const StatusOr<StageTime> stage = predict_stage(times, layer_counts(job, items));
  return stage.ok() ? stage->total_ms() : 0;
}

StatusOr<PlanningRequest> split_request(const JobSpec& job, const FittedTimes& times,
                                        const MeasuredRun& run) {
  PENSTOCK_ASSIGN_OR_RETURN(LayerCosts costs, layer_costs(job, times, run));
  PlanningRequest request;
  request.layers = std::move(costs.layers);
  request.forward_ns = std::move(costs.forward_ns);
  request.update_ns = std::move(costs.update_ns);
  request.updates_wait = updates_wait(job);
  request.split_backward_bytes = std::move(costs.split_backward_bytes);
  request.rank_bytes = costs.rank_bytes;
  request.ranks = job.parallel.pipeline;
  request.microbatches = static_cast<int>(job.microbatches());
  request.asked = {job.parallel.schedule, job.parallel.stages_per_rank};
  request.among = {request.asked};
  request.only_plans = true;
  PENSTOCK_ASSIGN_OR_RETURN(request.program, compute_program(job));
  if (job.memory_budget_bytes > 0) request.budget_bytes = {job.memory_budget_bytes};
  request.latency_ns = std::min(job.device.costs.latency_ns + job.device.costs.message_ns, kLatencyNsMax);
  return request;
}

StatusOr<double> simulated_seconds(PlanningRequest request, const Split& split) {
  request.budget_bytes.clear();
  PENSTOCK_ASSIGN_OR_RETURN(const PlannedStep step,
                            simulate_split(request, request.asked, boundaries_of(split)));
  return static_cast<double>(step.step_ns) / 1e9;
}

}  // namespace penstock::plan
