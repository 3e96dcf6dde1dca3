#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/text.h"
#include "client/commands/commands.h"
#include "client/commands/job_file.h"
#include "client/commands/planning_words.h"
#include "client/commands/schedule_request.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "plan/interop/job_profile.h"
#include "plan/interop/layout.h"
#include "plan/interop/planned_job.h"
#include "plan/interop/planning_json.h"
#include "plan/planning/planner.h"
#include "plan/render/human.h"
#include "plan/render/table.h"
#include "plan/schedule/families.h"

namespace penstock::client {
namespace {

using plan::PlannedStep;
using plan::PlanningAnswer;
using plan::PlanningRequest;
using plan::ScheduleChoice;
using plan::Table;

constexpr size_t kProfileFileBytesMax = size_t{64} << 20;
constexpr int kSearchesMax = 2;  // zb-auto and v-auto share the time

// --- what is asked.

// Those that are worth a look, and the job's own in any case.
std::vector<ScheduleChoice> choices_of(const PlanOptions& options, const ScheduleChoice& asked) {
  std::vector<ScheduleChoice> choices = plan::schedules_to_plan(options.search_seconds > 0);
  const bool has_asked = std::find(choices.begin(), choices.end(), asked) != choices.end();
  if (!has_asked && plan::known_schedule(asked.schedule) == plan::Known::Built) choices.push_back(asked);
  return choices;
}

std::function<bool()> until_from_now(double seconds) {
  const auto start = std::chrono::steady_clock::now();
  return [start, seconds] {
    return std::chrono::steady_clock::now() - start < std::chrono::duration<double>(seconds);
  };
}

// A program of the job's own has no family to plan with.
ScheduleChoice asked_schedule(const plan::JobSpec& job) {
  if (plan::known_schedule(job.parallel.schedule) == plan::Known::Built) {
    return {job.parallel.schedule, job.parallel.stages_per_rank};
  }
  return {"1f1b", 1};
}

StatusOr<PlanningRequest> request_of(const PlanOptions& options, const plan::JobSpec& job) {
  if (options.profile.empty()) {
    return invalid_argument(
        "--profile: missing; a file of layer costs as `penstock partition` reads, or what `penstock fit -o json` prints");
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(options.profile, kProfileFileBytesMax));
  PENSTOCK_ASSIGN_OR_RETURN(plan::LayerCosts costs, plan::job_profile_from_json(text, options.profile, job));
  PlanningRequest request;
  request.layers = std::move(costs.layers);
  request.forward_ns = std::move(costs.forward_ns);
  request.split_backward_bytes = std::move(costs.split_backward_bytes);
  request.rank_bytes = costs.rank_bytes;
  request.rank_speed = std::move(costs.rank_speed);
  request.ranks = job.parallel.pipeline;
  request.microbatches = static_cast<int>(job.microbatches());
  request.asked = asked_schedule(job);
  request.among = choices_of(options, request.asked);
  request.latency_ns = std::llround(options.latency_ms * 1e6);
  if (job.memory_budget_bytes > 0) request.budget_bytes = job.memory_budget_bytes;
  if (!options.memory_budget.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(request.budget_bytes, parse_bytes(options.memory_budget, "--memory-budget"));
  }
  if (!request
           .budget_bytes) {  // nothing is recomputed then, and the split is found faster without that choice
    for (plan::LayerCost& layer : request.layers) layer.recompute.reset();
  }
  if (options.search_seconds > 0) {
    request.start_search = [seconds = options.search_seconds / kSearchesMax] {
      return until_from_now(seconds);
    };
  }
  return request;
}

// --- for people.

// Layers of every stage: "9,8,9,8".
std::string counts_text(const plan::Partition& partition) {
  std::vector<std::string> counts;
  for (size_t stage = 0; stage + 1 < partition.boundaries.size(); ++stage) {
    counts.push_back(fmt::format("{}", partition.boundaries[stage + 1] - partition.boundaries[stage]));
  }
  return join(counts, ",");
}

void add_row(Table& table, const std::string& name, const PlannedStep& step, int64_t best_ns) {
  const double slower =
      best_ns > 0 ? 100.0 * static_cast<double>(step.step_ns - best_ns) / static_cast<double>(best_ns) : 0;
  table.add_row({name, fmt::format("{}", step.choice.stages_per_rank), planned_time(step.step_ns),
                 fmt::format("+{:.1f} %", slower), fmt::format("{:.1f} %", 100 * step.bubble_fraction),
                 plan::human_bytes(step.partition.peak_bytes),
                 fmt::format("{}", step.partition.recomputed.size()), step.limit,
                 counts_text(step.partition)});
}

std::string table_text(const PlanningAnswer& answer) {
  using enum Table::Align;
  Table table({{"PLAN"},
               {"V", Right},
               {"STEP", Right},
               {"SLOWER", Right},
               {"BUBBLE", Right},
               {"PEAK", Right},
               {"RECOMPUTED", Right},
               {"LIMIT"},
               {"ITEMS OF STAGES"}});
  const int64_t best = answer.plans.front().step_ns;
  for (const PlannedStep& step : answer.plans) add_row(table, step.choice.schedule, step, best);
  for (const plan::Baseline& baseline : answer.baselines) {
    if (baseline.step)
      add_row(table, baseline.step->choice.schedule + ", " + baseline.name, *baseline.step, best);
  }
  return table.text();
}

std::string curve_text(const PlanningAnswer& answer) {
  if (answer.curve.size() < 2) return "";
  Table table({{"WITH A PEAK OF", Table::Align::Right}, {"STEP", Table::Align::Right}});
  for (const PlannedStep& step : answer.curve) {
    table.add_row({plan::human_bytes(step.partition.peak_bytes), planned_time(step.step_ns)});
  }
  return "\n" + table.text();
}

std::string left_out_text(const PlanningAnswer& answer) {
  std::string text;
  for (const plan::Baseline& baseline : answer.baselines) {
    if (!baseline.step) text += fmt::format("left out: {}: {}\n", baseline.name, baseline.why_not);
  }
  for (const plan::LeftOut& left_out : answer.left_out) {
    text += fmt::format("left out: {} with {} a rank: {}\n", left_out.choice.schedule,
                        plan::counted(left_out.choice.stages_per_rank, "stage"), left_out.reason);
  }
  return text;
}

// --- for other programs.

// With what its ranks will hold, as training counts it.
std::string fragment_of(const plan::JobSpec& job, const PlannedStep& step) {
  const plan::JobSpec planned = plan::planned_job(job, step);
  const auto memory = plan::memory_of_job(planned);
  const std::string held = memory.ok() ? plan::largest_memory_text(*memory) : message(memory.status());
  return plan::job_fragment(planned) + "# memory: " + held + "\n";
}

StatusOr<std::string> layout_of(const plan::JobSpec& job, const PlannedStep& step) {
  if (step.placement != plan::StagePlacement::Loop) {
    return failed_precondition("{} has the V placement, which Megatron's layouts cannot say",
                               step.choice.schedule);
  }
  return plan::megatron_layout(
             plan::layout_from_split(plan::split_of(job.model, step.partition.boundaries))) +
         "\n";
}

StatusOr<std::string> output_of(const PlanOptions& options, const plan::JobSpec& job,
                                const PlanningRequest& request, const PlanningAnswer& answer) {
  if (options.output == "json") return plan::planning_to_json(job.model, request, answer);
  const PlannedStep& best = answer.plans.front();
  if (options.output == "job") return fragment_of(job, best);
  if (options.output == "megatron-layout") return layout_of(job, best);
  if (options.output == "torchtitan")
    return plan::torchtitan_parts(plan::split_of(job.model, best.partition.boundaries));
  return table_text(answer) + oversized_line(request.layers, answer.oversized) + left_out_text(answer) +
         curve_text(answer) + "\n" + fragment_of(job, best);
}

int report_no_plan(const PlanOptions& options, const PlanningAnswer& answer) {
  if (answer.smallest_budget) {
    say(fmt::format("penstock: {}: no plan fits; the smallest budget that works is {} bytes ({})",
                    options.file, *answer.smallest_budget, plan::human_bytes(*answer.smallest_budget)));
  } else {
    say(fmt::format("penstock: {}: no schedule takes this shape\n{}", options.file, left_out_text(answer)));
  }
  return kExitFailed;
}

}  // namespace

int plan_job(const PlanOptions& options) {
  const StatusOr<JobFile> file = read_job_file(options.file);
  if (!file.ok()) return report_error(file.status());
  const StatusOr<PlanningRequest> request = request_of(options, file->spec);
  if (!request.ok()) return report_error(request.status());
  const StatusOr<PlanningAnswer> answer = plan::plan_training(*request);
  if (!answer.ok()) return report_error(with_context(answer.status(), options.profile));
  if (answer->plans.empty() && options.output != "json") return report_no_plan(options, *answer);
  const StatusOr<std::string> output = output_of(options, file->spec, *request, *answer);
  if (!output.ok()) return report_error(output.status());
  print(*output);
  return answer->plans.empty() ? report_no_plan(options, *answer) : kExitSucceeded;
}

}  // namespace penstock::client
