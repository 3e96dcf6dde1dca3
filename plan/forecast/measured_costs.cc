#include "plan/forecast/measured_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/text.h"
#include "plan/forecast/job_plan.h"
#include "plan/interop/job_profile.h"
#include "plan/interop/planning_json.h"
#include "plan/rebalancing/layer_fit.h"
#include "plan/spec/cost_source.h"

namespace penstock::plan {
namespace {

const std::string kAgain = ", recomputed";

// What was measured, as the closures of the model share it.
struct Measured {
  std::vector<MeasuredJobRuns> jobs;
  LayerFit fit;
  double update_ns_per_byte = 0;  // of a step, by static bytes of layers
};

std::string names_of(const std::vector<MeasuredJobRuns>& jobs) {
  std::vector<std::string> names;
  for (const MeasuredJobRuns& each : jobs) names.push_back(each.name);
  return (names.size() == 1 ? "job " : "jobs ") + join(names, " and ");
}

Status check(const std::vector<MeasuredJobRuns>& jobs) {
  if (jobs.empty()) return invalid_argument("measured jobs: expected at least one");
  for (const MeasuredJobRuns& each : jobs) {
    if (each.runs.empty()) return invalid_argument("job {}: nothing is measured yet", each.name);
    for (const MeasuredRun& run : each.runs) {
      Status status = check_run(run);
      if (status.ok()) status = check_split(each.job.model, run.split);
      if (!status.ok()) return with_context(status, "job " + each.name);
    }
    const std::string difference = why_layers_differ(jobs.front().job, each.job);
    if (!difference.empty())
      return invalid_argument("jobs {} and {} have other layers: {}", jobs.front().name, each.name,
                              difference);
  }
  return ok_status();
}

StatusOr<LayerFit> fitted(const std::vector<MeasuredJobRuns>& jobs) {
  std::vector<JobRuns> measured;
  for (const MeasuredJobRuns& each : jobs) measured.push_back({&each.job, each.runs});
  StatusOr<LayerFit> fit = fit_layers(measured);
  if (!fit.ok()) return with_context(fit.status(), names_of(jobs));
  return fit;
}

// Of the newest run.
StatusOr<double> newest_update_ns_per_byte(const MeasuredJobRuns& measured) {
  LayerCosts bytes;
  bytes.layers.resize(model_items(measured.job.model).size());
  PENSTOCK_RETURN_IF_ERROR(predict_bytes(measured.job, bytes));
  return update_ns_per_byte(measured.runs.back(), measured.job, bytes);
}

// A type that was measured, or the same blocks with or without a second forward.
StatusOr<StageTime> time_of_type(const Measured& measured, const std::string& type,
                                 std::optional<double> tokens) {
  const FittedTimes& times = measured.fit.times;
  if (times.types.contains(type)) return predict_stage(times, {{type, 1}}, tokens);
  const bool again = type.ends_with(kAgain);
  const std::string other = again ? type.substr(0, type.size() - kAgain.size()) : type + kAgain;
  if (!times.types.contains(other)) {
    return invalid_argument("{} has no {}: a run of a job that has one would say what it costs",
                            names_of(measured.jobs), again ? other : type);
  }
  PENSTOCK_ASSIGN_OR_RETURN(StageTime time, predict_stage(times, {{other, 1}}, tokens));
  time.backward_ms = std::max(0.0, time.backward_ms + (again ? time.forward_ms : -time.forward_ms));
  return time;
}

Status check_speaks_for(const Measured& measured, const JobSpec& job) {
  const MeasuredJobRuns& first = measured.jobs.front();
  const std::string difference = why_layers_differ(first.job, job);
  if (!difference.empty())
    return invalid_argument("job {} says nothing about this one: {}", first.name, difference);
  if (measured.fit.times.by_tokens) return ok_status();
  if (first.job.train.microbatch_size == job.train.microbatch_size) return ok_status();
  return invalid_argument(
      "{}: measured with train.microbatch_size {}, found {}; a run at another size beside it would say how costs grow",
      names_of(measured.jobs), first.job.train.microbatch_size, job.train.microbatch_size);
}

StatusOr<JobCosts> costs_of(const Measured& measured, const JobSpec& job) {
  PENSTOCK_RETURN_IF_ERROR(check_speaks_for(measured, job));
  std::optional<double> tokens;
  if (measured.fit.times.by_tokens) tokens = static_cast<double>(job.tokens_per_microbatch());
  std::vector<ItemTime> times;
  for (const Item& item : model_items(job.model)) {
    PENSTOCK_ASSIGN_OR_RETURN(const StageTime time, time_of_type(measured, cost_type_of(job, item), tokens));
    times.push_back({std::llround(1e6 * time.forward_ms), std::llround(1e6 * time.backward_ms)});
  }
  JobCosts costs{layers_of(job, times), 0};
  if (measured.update_ns_per_byte == 0) return costs;
  LayerCosts bytes = costs.layers;
  PENSTOCK_RETURN_IF_ERROR(predict_bytes(job, bytes));
  add_update(measured.update_ns_per_byte, bytes, costs.layers);
  return costs;
}

// By how much the newest run's step is missed; nothing where its job goes on with another split.
std::optional<double> step_error(const LayerCostModel& model, const MeasuredJobRuns& measured) {
  const MeasuredRun& run = measured.runs.back();
  if (run.split != measured.job.parallel.split || run.schedule != measured.job.parallel.schedule)
    return std::nullopt;
  JobPlanningOptions as_it_ran;
  as_it_ran.has_budget = false;
  const StatusOr<PlanningRequest> request = planning_request(measured.job, model, as_it_ran);
  if (!request.ok()) return std::nullopt;
  const StatusOr<PlannedStep> step =
      simulate_split(*request, request->asked, boundaries_of(measured.job.parallel.split));
  if (!step.ok()) return std::nullopt;
  return std::abs(static_cast<double>(step->step_ns) / 1e9 / step_seconds(run) - 1);
}

// The mean over what was measured; nothing where any times would fit.
std::optional<double> mean_stage_error(const LayerFit& fit) {
  if (fit.times.degrees_of_freedom == 0) return std::nullopt;
  double sum_percent = 0;
  for (size_t i = 0; i < fit.measured; ++i) sum_percent += std::abs(fit.times.error_percent[i]);
  return sum_percent / 100 / static_cast<double>(fit.measured);
}

std::optional<double> largest_step_error(const LayerCostModel& model, const Measured& measured) {
  std::optional<double> largest;
  for (const MeasuredJobRuns& each : measured.jobs) {
    if (const std::optional<double> error = step_error(model, each))
      largest = std::max(largest.value_or(0), *error);
  }
  return largest;
}

void add_errors(LayerCostModel& model, const Measured& measured) {
  const std::optional<double> stages = mean_stage_error(measured.fit);
  const std::optional<double> steps = largest_step_error(model, measured);
  std::vector<std::string> words;
  if (stages) {
    words.push_back(fmt::format("stages within {:.1f} % on average, {:.1f} % at most", 100 * *stages,
                                measured.fit.times.largest_error_percent));
  }
  if (steps) words.push_back(fmt::format("steps within {:.1f} %", 100 * *steps));
  if (!stages && !steps) words.push_back("no more stages than unknown costs: how far they miss is not known");
  model.error = stages || steps ? std::max(stages.value_or(0), steps.value_or(0)) : kRatesError;
  model.source += fmt::format(" ({})", join(words, "; "));
  if (!measured.fit.note.empty()) model.source += "; " + measured.fit.note;
}

template <typename T>
std::string difference_of(const char* field, const T& expected, const T& found) {
  return expected == found ? "" : fmt::format("{} {}, found {}", field, expected, found);
}

std::string documents_text(const JobSpec& job) {
  return job.data.end_of_document < 0 ? "none" : fmt::format("{}", job.data.end_of_document);
}

double in_ms(int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

// "3 + 6 ms", "3 + 4 + 2 ms" of two halves.
std::string emulated_text(const EmulatedCosts::Stage& costs) {
  if (costs.input_gradient_ns == 0)
    return fmt::format("{} + {} ms", in_ms(costs.forward_ns), in_ms(costs.backward_ns));
  const std::string halves = fmt::format("{} + {} + {} ms", in_ms(costs.forward_ns),
                                         in_ms(costs.input_gradient_ns), in_ms(costs.weight_gradient_ns));
  const bool is_sum = costs.backward_ns == costs.input_gradient_ns + costs.weight_gradient_ns;
  return is_sum ? halves : fmt::format("{}, or {} at once", halves, in_ms(costs.backward_ns));
}

using EmulatedTexts = std::map<std::string, std::string>;

// What an emulated device says by type of layer, or, where its costs are by stage, by stage.
EmulatedTexts emulated_costs(const JobSpec& job) {
  EmulatedTexts texts;
  if (!job.device.emulated()) return texts;
  const auto of_layers = costs_of_layers(job);
  const std::vector<Item> items = model_items(job.model);
  if (of_layers.ok() && of_layers->size() == items.size()) {
    for (size_t i = 0; i < items.size(); ++i)
      texts["of " + cost_type_of(job, items[i])] = emulated_text((*of_layers)[i]);
    return texts;
  }
  const std::vector<EmulatedCosts::Stage>& stages = job.device.costs.stages;
  for (size_t stage = 0; stage < stages.size(); ++stage)
    texts[fmt::format("of stage {}", stage)] = emulated_text(stages[stage]);
  return texts;
}

// Types that only one of them has are told where they are asked for.
std::string emulated_difference(const JobSpec& measured, const JobSpec& job) {
  const EmulatedTexts before = emulated_costs(measured), after = emulated_costs(job);
  bool has_common = before.empty() && after.empty();
  for (const auto& [type, text] : before) {
    const auto found = after.find(type);
    if (found == after.end()) continue;
    has_common = true;
    if (found->second != text) return difference_of(("device.costs " + type).c_str(), text, found->second);
  }
  return has_common ? "" : "device.costs by layer or by stage, found the other";
}

}  // namespace

std::string why_layers_differ(const JobSpec& measured, const JobSpec& job) {
  const ModelSpec &a = measured.model, &b = job.model;
  const std::vector<std::string> differences = {
      difference_of("model.vocab_size", a.vocab_size, b.vocab_size),
      difference_of("model.hidden_size", a.hidden_size, b.hidden_size),
      difference_of("model.num_attention_heads", a.num_attention_heads, b.num_attention_heads),
      difference_of("model.num_key_value_heads", a.num_key_value_heads, b.num_key_value_heads),
      difference_of("model.head_dim", a.head_size(), b.head_size()),
      difference_of("model.intermediate_size", a.intermediate_size, b.intermediate_size),
      difference_of("model.qk_norm", a.qk_norm, b.qk_norm),
      difference_of("model.qk_norm_across_heads", a.qk_norm_across_heads, b.qk_norm_across_heads),
      difference_of("model.hidden_dropout", a.hidden_dropout, b.hidden_dropout),
      difference_of("model.moe.num_experts", a.moe.num_experts, b.moe.num_experts),
      difference_of("model.moe.num_experts_per_tok", a.moe.num_experts_per_tok, b.moe.num_experts_per_tok),
      difference_of("model.moe.moe_intermediate_size", a.moe.moe_intermediate_size,
                    b.moe.moe_intermediate_size),
      difference_of("model.moe.num_shared_experts", a.moe.num_shared_experts, b.moe.num_shared_experts),
      difference_of("model.moe.capacity_factor", a.moe.capacity_factor, b.moe.capacity_factor),
      difference_of("data.sequence_length", measured.data.sequence_length, job.data.sequence_length),
      difference_of("data.end_of_document", documents_text(measured), documents_text(job)),
      difference_of("train.dtype", measured.train.dtype, job.train.dtype),
      difference_of("parallel.expert", measured.parallel.expert, job.parallel.expert),
      difference_of("two_batch_overlap", measured.two_batch_overlap, job.two_batch_overlap),
      difference_of("device.kind", measured.device.kind, job.device.kind),
      difference_of("device.threads", measured.device.threads, job.device.threads),
      emulated_difference(measured, job)};
  for (const std::string& difference : differences) {
    if (!difference.empty()) return "measured with " + difference;
  }
  return "";
}

StatusOr<LayerCostModel> measured_model(std::vector<MeasuredJobRuns> jobs) {
  PENSTOCK_RETURN_IF_ERROR(check(jobs));
  const auto measured = std::make_shared<Measured>();
  PENSTOCK_ASSIGN_OR_RETURN(measured->fit, fitted(jobs));
  PENSTOCK_ASSIGN_OR_RETURN(measured->update_ns_per_byte, newest_update_ns_per_byte(jobs.front()));
  measured->jobs = std::move(jobs);
  LayerCostModel model;
  model.source = "measured runs of " + names_of(measured->jobs);
  if (!measured->fit.times.by_tokens) {
    model.one_size = fmt::format(
        "{} ran with train.microbatch_size {} alone; a job of another size beside it (--profile twice) would say how costs "
        "grow",
        names_of(measured->jobs), measured->jobs.front().job.train.microbatch_size);
  }
  model.costs = [measured](const JobSpec& job) { return costs_of(*measured, job); };
  add_errors(model, *measured);
  return model;
}

}  // namespace penstock::plan
