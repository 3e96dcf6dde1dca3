#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "client/commands/commands.h"
#include "client/commands/cost_profile.h"
#include "client/commands/job_file.h"
#include "client/commands/model_shape.h"
#include "client/commands/planning_time.h"
#include "client/commands/planning_words.h"
#include "client/commands/schedule_request.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "plan/forecast/auto_plan.h"
#include "plan/forecast/job_plan.h"
#include "plan/interop/layout.h"
#include "plan/interop/planned_job.h"
#include "plan/interop/planning_json.h"
#include "plan/planning/planner.h"
#include "plan/render/human.h"
#include "plan/render/table.h"
#include "plan/schedule/families.h"
#include "plan/spec/auto_source.h"

namespace penstock::client {
namespace {

using plan::JobSpec;
using plan::PlannedJobSize;
using plan::PlannedStep;
using plan::PlanningAnswer;
using plan::ScheduleChoice;
using plan::Table;

constexpr int kSearchesMax = 2;  // zb-auto and v-auto share the time

// --- what is asked.

std::string name_of(const PlanOptions& options) {
  return options.file.empty() ? options.shape.config : options.file;
}

// The jobs that the file, or the config, may become: one a size of microbatch.
StatusOr<std::vector<JobSpec>> jobs_of(const PlanOptions& options) {
  if (options.file.empty() == options.shape.config.empty())
    return invalid_argument("expected a job file, or --from-config with a model's config.json");
  if (!options.file.empty() && !options.shape.given.empty()) {
    const auto& [option, field] = options.shape.given.front();
    return invalid_argument("{} goes with --from-config; a job file says it itself: write {} there", option,
                            field);
  }
  const StatusOr<std::string> text =
      options.file.empty() ? job_text_of(options.shape) : read_job_text(options.file, options.connection);
  PENSTOCK_RETURN_IF_ERROR(text.status());
  StatusOr<std::vector<JobSpec>> jobs = plan::jobs_to_plan(*text);
  if (!jobs.ok()) return refused(name_of(options), jobs.status());
  for (JobSpec& job : *jobs) {
    // Baselines of a schedule that nobody has searched for yet stand on its relative.
    if (plan::is_searched_schedule(job.parallel.schedule) && job.parallel.program.empty()) {
      job.parallel.schedule = "1f1b";
      job.parallel.stages_per_rank = 1;
    }
  }
  return jobs;
}

// Those that are worth a look, and the job's own in any case.
std::vector<ScheduleChoice> choices_of(const PlanOptions& options, const JobSpec& job) {
  std::vector<ScheduleChoice> choices = plan::schedules_to_plan(options.search_seconds > 0);
  const ScheduleChoice asked = {job.parallel.schedule, job.parallel.stages_per_rank};
  if (std::find(choices.begin(), choices.end(), asked) == choices.end()) choices.push_back(asked);
  return choices;
}

StatusOr<plan::JobPlanningOptions> planning_options(const PlanOptions& options, const JobSpec& job) {
  plan::JobPlanningOptions planning;
  planning.among = choices_of(options, job);
  planning.recomputation = plan::Recomputation::Planned;
  if (options.latency_ms) planning.latency_ns = std::llround(*options.latency_ms * 1e6);
  PENSTOCK_ASSIGN_OR_RETURN(planning.budget_bytes, parse_byte_list(options.memory_budget, "--memory-budget"));
  if (options.search_seconds > 0) {
    planning.search = [seconds = options.search_seconds / kSearchesMax] { return until_from_now(seconds); };
  }
  return planning;
}

struct Planned {
  plan::LayerCostModel model;
  std::vector<PlannedJobSize> sizes;  // fastest first

  const PlannedJobSize& best() const { return sizes.front(); }
};

StatusOr<Planned> planned(const PlanOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<JobSpec> jobs, jobs_of(options));
  PENSTOCK_ASSIGN_OR_RETURN(const plan::CostSources sources, cost_sources(options.costs, options.connection));
  Planned result;
  PENSTOCK_ASSIGN_OR_RETURN(result.model, plan::cost_model_for(jobs.front(), sources));
  PENSTOCK_ASSIGN_OR_RETURN(const plan::JobPlanningOptions planning, planning_options(options, jobs.front()));
  PENSTOCK_ASSIGN_OR_RETURN(result.sizes, plan::plan_sizes(jobs, result.model, planning));
  return result;
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

std::string slower_text(const PlannedStep& step, int64_t best_ns) {
  if (best_ns == 0) return "+0.0 %";
  return fmt::format("+{:.1f} %",
                     100.0 * static_cast<double>(step.step_ns - best_ns) / static_cast<double>(best_ns));
}

void add_row(Table& table, const std::string& name, const PlannedStep& step, int64_t best_ns) {
  table.add_row({name, fmt::format("{}", step.choice.stages_per_rank), planned_time(step.step_ns),
                 slower_text(step, best_ns), fmt::format("{:.1f} %", 100 * step.bubble_fraction),
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
  using enum Table::Align;
  Table table({{"WITH A PEAK OF", Right}, {"STEP", Right}, {"PLAN"}, {"V", Right}});
  for (const PlannedStep& step : answer.curve) {
    table.add_row({plan::human_bytes(step.partition.peak_bytes), planned_time(step.step_ns),
                   step.choice.schedule, fmt::format("{}", step.choice.stages_per_rank)});
  }
  return "\n" + table.text();
}

// The best plan of every size of microbatch, where the job leaves it free.
std::string sizes_text(const Planned& planned) {
  if (planned.sizes.size() < 2) return "";
  using enum Table::Align;
  Table table({{"MICROBATCH SIZE", Right},
               {"MICROBATCHES", Right},
               {"STEP", Right},
               {"SLOWER", Right},
               {"BUBBLE", Right},
               {"PEAK", Right},
               {"PLAN"},
               {"V", Right}});
  const int64_t best = planned.best().answer.plans.front().step_ns;
  for (const PlannedJobSize& size : planned.sizes) {
    const std::string sequences = fmt::format("{}", size.job.train.microbatch_size);
    const std::string microbatches = fmt::format("{}", size.job.microbatches());
    if (size.answer.plans.empty()) {
      table.add_row({sequences, microbatches, "", "", "", "", "none fits", ""});
      continue;
    }
    const PlannedStep& step = size.answer.plans.front();
    table.add_row({sequences, microbatches, planned_time(step.step_ns), slower_text(step, best),
                   fmt::format("{:.1f} %", 100 * step.bubble_fraction),
                   plan::human_bytes(step.partition.peak_bytes), step.choice.schedule,
                   fmt::format("{}", step.choice.stages_per_rank)});
  }
  return table.text() +
         fmt::format("plans with microbatches of {}:\n", planned.best().job.train.microbatch_size);
}

std::string costs_text(const Planned& planned) {
  if (!planned.model.is_measured) {
    return fmt::format(
        "costs: {}; steps are as long as these rates say, ratios between them may be off by {:.1f} %\n",
        planned.model.source, 100 * planned.model.error);
  }
  return fmt::format("costs: {}; predictions may be off by {:.1f} % of a step\n", planned.model.source,
                     100 * planned.model.error);
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
std::string fragment_of(const Planned& planned) {
  const JobSpec& job = planned.best().job;
  const JobSpec best = plan::planned_job(job, planned.best().answer.plans.front());
  const auto memory = plan::memory_of_job(best);
  const std::string held = memory.ok() ? plan::largest_memory_text(*memory) : message(memory.status());
  const std::string size = planned.sizes.size() < 2
                               ? ""
                               : fmt::format("# train: microbatch_size: {}\n", job.train.microbatch_size);
  return size + plan::job_fragment(best) + "# memory: " + held + "\n";
}

StatusOr<std::string> layout_of(const JobSpec& job, const PlannedStep& step) {
  if (step.placement != plan::StagePlacement::Loop) {
    return failed_precondition("{} has the V placement, which Megatron's layouts cannot say",
                               step.choice.schedule);
  }
  return plan::megatron_layout(
             plan::layout_from_split(plan::split_of(job.model, step.partition.boundaries))) +
         "\n";
}

std::string json_of(const Planned& planned) {
  plan::PlanningBasis basis = {.costs = planned.model.source,
                               .error = planned.model.error,
                               .is_measured = planned.model.is_measured,
                               .microbatch_size = planned.best().job.train.microbatch_size,
                               .sizes = {}};
  for (const PlannedJobSize& size : planned.sizes) {
    if (!size.answer.plans.empty())
      basis.sizes.push_back({size.job.train.microbatch_size, size.answer.plans.front()});
  }
  const PlannedJobSize& best = planned.best();
  return plan::planning_to_json(best.job.model, best.request, best.answer, basis);
}

StatusOr<std::string> output_of(const PlanOptions& options, const Planned& planned) {
  if (options.output == "json") return json_of(planned);
  const PlannedJobSize& best = planned.best();
  const PlannedStep& step = best.answer.plans.front();
  if (options.output == "job") return fragment_of(planned);
  if (options.output == "megatron-layout") return layout_of(best.job, step);
  if (options.output == "torchtitan")
    return plan::torchtitan_parts(plan::split_of(best.job.model, step.partition.boundaries));
  return costs_text(planned) + sizes_text(planned) + table_text(best.answer) +
         oversized_line(best.request.layers, best.answer.oversized) + left_out_text(best.answer) +
         curve_text(best.answer) + "\n" + fragment_of(planned);
}

int report_no_plan(const PlanOptions& options, const Planned& planned) {
  const std::string name = name_of(options);
  const PlanningAnswer& answer = planned.best().answer;
  if (answer.missing_bytes) {
    say(fmt::format("penstock: {}: no plan fits; {}", name,
                    missing_memory(answer.missing_bytes, answer.smallest_budget)));
  } else {
    const std::string remedy =
        planned.model.is_measured
            ? ""
            : "the rates of the devices, --device-flops and --device-bandwidth, may be far off\n";
    say(fmt::format("penstock: {}: no schedule takes this shape\n{}{}", name, left_out_text(answer), remedy));
  }
  return kExitFailed;
}

}  // namespace

int plan_job(const PlanOptions& options) {
  const StatusOr<Planned> found = planned(options);
  if (!found.ok()) return report_error(found.status());
  const PlanningAnswer& answer = found->best().answer;
  if (answer.plans.empty() && options.output != "json") return report_no_plan(options, *found);
  const StatusOr<std::string> output = output_of(options, *found);
  if (!output.ok()) return report_error(output.status());
  print(*output);
  return answer.plans.empty() ? report_no_plan(options, *found) : kExitSucceeded;
}

}  // namespace penstock::client
