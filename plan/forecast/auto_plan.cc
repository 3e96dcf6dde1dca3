#include "plan/forecast/auto_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "plan/cost/memory.h"
#include "plan/forecast/job_plan.h"
#include "plan/interop/planned_job.h"
#include "plan/interop/planning_json.h"
#include "plan/rebalancing/planned_stages.h"
#include "plan/schedule/families.h"
#include "plan/spec/auto_source.h"
#include "plan/spec/same_training.h"
#include "plan/spec/schedule_source.h"

namespace penstock::plan {
namespace {

constexpr double kAsGood = 1.01;  // of two steps
constexpr size_t kStagesNoted = 256;
constexpr const char* kSayRates = "say those of the devices with --device-flops and --device-bandwidth";

std::string time_text(int64_t nanoseconds) {
  const double ms = static_cast<double>(nanoseconds) / 1e6;
  return ms < 1000 ? fmt::format("{:.4g} ms", ms) : fmt::format("{:.4g} s", ms / 1000);
}

bool is_too_large(const JobSpec& job) {
  return job.microbatches() * job.stages() > kPlannedWorksMax;
}

// --- schedule and size of microbatch.

std::vector<ScheduleChoice> schedules_for(const JobSpec& job) {
  std::vector<ScheduleChoice> choices = schedules_to_plan(is_searched_schedule(job.parallel.schedule));
  if (job.lines.contains("parallel.stages_per_rank")) {
    std::erase_if(choices, [&](const ScheduleChoice& choice) {
      return choice.stages_per_rank != job.parallel.stages_per_rank;
    });
  }
  return choices;
}

// The searches of all sizes and schedules share the job's search_seconds out.
void limit_time(const std::vector<JobSpec>& jobs, const StartTimer& start_timer,
                JobPlanningOptions& options) {
  const JobSpec& job = jobs.front();
  const auto is_searched = [](const ScheduleChoice& choice) { return is_searched_schedule(choice.schedule); };
  auto searches = std::count_if(options.among.begin(), options.among.end(), is_searched);
  if (options.among.empty() && is_searched_schedule(job.parallel.schedule)) searches = 1;
  const double seconds = searches == 0 ? 0 : job.parallel.schedule_options.search_seconds;
  options.keep_going = start_timer(kPlanningSeconds + seconds);
  const double share = seconds / static_cast<double>(std::max<int64_t>(1, searches) * std::ssize(jobs));
  options.search = [start_timer, share] { return start_timer(share); };
}

// Bits may depend on the split: then only whoever brings costs asks for another one.
bool may_choose_split(const JobSpec& job, const LayerCostModel& model) {
  return model.is_measured || keeps_bits_under_any_split(job);
}

// The planner cuts a model into stages of one rank each. A schedule that is still to be searched for has those.
Status check_can_choose_size(const JobSpec& job) {
  const StatusOr<ComputeProgram> program = compute_program(job);
  if (!program.ok()) return ok_status();
  const auto is_on_two = [](const std::vector<RankIndex>& ranks) { return ranks.size() > 1; };
  if (std::none_of(program->placement.begin(), program->placement.end(), is_on_two)) return ok_status();
  return invalid_argument(
      "{}: expected a number with schedule {}, which holds each stage on two ranks, found auto, which is planned for schedules "
      "with each on one; write a number, or `schedule: auto`",
      place_of(job, "train.microbatch_size"), job.parallel.schedule);
}

struct Candidate {
  const PlannedJobSize* sized = nullptr;
  const PlannedStep* step = nullptr;
};

// In the order in which they are to be taken: those that are as good as the fastest first, by their simplicity.
std::vector<Candidate> candidates_of(const std::vector<PlannedJobSize>& sizes) {
  std::vector<Candidate> candidates;
  for (const PlannedJobSize& sized : sizes) {
    for (const PlannedStep& step : sized.answer.plans) candidates.push_back({&sized, &step});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.step->step_ns < b.step->step_ns; });
  if (candidates.empty()) return candidates;
  const double limit = kAsGood * static_cast<double>(candidates.front().step->step_ns);
  const auto end = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& each) {
    return static_cast<double>(each.step->step_ns) > limit;
  });
  std::stable_sort(candidates.begin(), end, [](const Candidate& a, const Candidate& b) {
    const PlannedStep &x = *a.step, &y = *b.step;
    if (x.choice.stages_per_rank != y.choice.stages_per_rank)
      return x.choice.stages_per_rank < y.choice.stages_per_rank;
    return x.partition.peak_bytes < y.partition.peak_bytes;
  });
  return candidates;
}

PlannedFields fields_of(const AutoFields& asked, const Candidate& candidate) {
  const JobSpec planned = planned_job(candidate.sized->job, *candidate.step);
  PlannedFields fields;
  if (asked.microbatch_size) fields.microbatch_size = planned.train.microbatch_size;
  if (asked.split && planned.stages() > 1) fields.split = planned.parallel.split;
  if (!asked.schedule) return fields;
  fields.schedule = planned.parallel.schedule;
  if (planned.parallel.stages_per_rank != 1 ||
      candidate.sized->job.lines.contains("parallel.stages_per_rank"))
    fields.stages_per_rank = planned.parallel.stages_per_rank;
  if (!candidate.sized->job.lines.contains("recompute")) fields.recompute = planned.recompute;
  return fields;
}

std::string stages_text(const ScheduleChoice& choice) {
  const int stages = choice.stages_per_rank;
  return stages == 1 ? choice.schedule : fmt::format("{} with {} stages a rank", choice.schedule, stages);
}

std::string slower_text(const PlannedStep& step, const PlannedStep& chosen) {
  if (chosen.step_ns == 0) return time_text(step.step_ns);
  return fmt::format("{}, {:+.1f} %", time_text(step.step_ns),
                     100 * (static_cast<double>(step.step_ns) / static_cast<double>(chosen.step_ns) - 1));
}

// A plan whose job file is not accepted, and why.
struct Refused {
  Candidate candidate;
  std::string reason;
};

bool is_refused(const PlannedStep& step, const std::vector<Refused>& refused) {
  return std::any_of(refused.begin(), refused.end(),
                     [&](const Refused& each) { return each.candidate.step == &step; });
}

// The fastest of another schedule, at the same size.
std::string next_schedule_text(const Candidate& chosen, const std::vector<Refused>& refused) {
  for (const PlannedStep& step : chosen.sized->answer.plans) {
    if (step.choice == chosen.step->choice || is_refused(step, refused)) continue;
    return fmt::format("; next is {} ({})", stages_text(step.choice), slower_text(step, *chosen.step));
  }
  return "";
}

// The fastest of another size.
std::string next_size_text(const std::vector<PlannedJobSize>& sizes, const Candidate& chosen,
                           const std::vector<Refused>& refused) {
  for (const PlannedJobSize& sized : sizes) {
    for (const PlannedStep& step : sized.answer.plans) {
      if (&sized == chosen.sized || is_refused(step, refused)) continue;
      return fmt::format("; next is {} ({})", sized.job.train.microbatch_size,
                         slower_text(step, *chosen.step));
    }
  }
  return "";
}

// The fastest plan that was refused, where it is faster than the chosen one.
std::vector<std::string> refusal_notes(const Candidate& chosen, const std::vector<Refused>& refused) {
  if (refused.empty() || refused.front().candidate.step->step_ns >= chosen.step->step_ns) return {};
  const PlannedStep& step = *refused.front().candidate.step;
  const std::string& reason = refused.front().reason;  // of several lines the first one: a note has one
  return {fmt::format("{} would be faster ({}) but is refused: {}", stages_text(step.choice),
                      slower_text(step, *chosen.step), reason.substr(0, reason.find('\n')))};
}

std::string stopped_text(const std::string& missing) {
  return fmt::format("planning was stopped after {} s and did not look at {}; `penstock plan` looks at all",
                     kPlanningSeconds, missing);
}

// What the stages were planned to take, for `penstock curves`; not where times are only ratios.
void note_stages(const JobSpec& job, const PlanningRequest& request, const Partition& partition,
                 const LayerCostModel& model, std::vector<std::string>& notes) {
  const Split split = split_of(job.model, partition.boundaries);
  if (!model.is_measured || split.size() < 2 || split.size() > kStagesNoted) return;
  const std::set<int> recomputed(partition.recomputed.begin(), partition.recomputed.end());
  std::vector<double> ms(split.size());
  for (size_t stage = 0; stage < split.size(); ++stage) {
    for (int layer = partition.boundaries[stage]; layer < partition.boundaries[stage + 1]; ++layer) {
      const LayerCost& cost = request.layers[static_cast<size_t>(layer)];
      const bool again = cost.recompute && recomputed.contains(layer);
      ms[stage] += static_cast<double>((again ? *cost.recompute : cost.keep).time_ns) / 1e6;
    }
  }
  notes.push_back(stages_note(split, ms));
}

// What nobody knows of when the time was up.
std::string not_reached_text(const std::vector<PlannedJobSize>& sizes, const Candidate& chosen) {
  std::vector<std::string> missing;
  for (const ScheduleChoice& choice : chosen.sized->answer.not_reached)
    missing.push_back(stages_text(choice));
  for (const PlannedJobSize& sized : sizes) {
    if (&sized != chosen.sized && sized.answer.is_cut_short && sized.answer.plans.empty())
      missing.push_back(fmt::format("microbatch_size {}", sized.job.train.microbatch_size));
  }
  return missing.empty() ? "some other splits" : join(missing);
}

bool is_cut_short(const std::vector<PlannedJobSize>& sizes) {
  return std::any_of(sizes.begin(), sizes.end(),
                     [](const PlannedJobSize& sized) { return sized.answer.is_cut_short; });
}

std::vector<std::string> notes_of(const AutoFields& asked, const std::vector<PlannedJobSize>& sizes,
                                  const Candidate& chosen, const std::vector<Refused>& refused,
                                  const LayerCostModel& model) {
  const PlannedStep& step = *chosen.step;
  std::vector<std::string> notes;
  if (asked.schedule) {
    notes.push_back(fmt::format("schedule: auto is {}: a step of {}, {:.1f} % bubble{}",
                                stages_text(step.choice), time_text(step.step_ns), 100 * step.bubble_fraction,
                                next_schedule_text(chosen, refused)));
  }
  if (asked.microbatch_size) {
    notes.push_back(fmt::format("microbatch_size: auto is {}: a step of {}{}",
                                chosen.sized->job.train.microbatch_size, time_text(step.step_ns),
                                next_size_text(sizes, chosen, refused)));
  }
  for (std::string& note : refusal_notes(chosen, refused)) notes.push_back(std::move(note));
  if (!step.partition.recomputed.empty())
    notes.push_back(
        fmt::format("{} blocks recompute to fit the memory budget", step.partition.recomputed.size()));
  notes.push_back("planned from " + model.source);
  note_stages(chosen.sized->job, chosen.sized->request, step.partition, model, notes);
  if (is_cut_short(sizes)) notes.push_back(stopped_text(not_reached_text(sizes, chosen)));
  return notes;
}

Status no_plan(const std::vector<PlannedJobSize>& sizes, const LayerCostModel& model) {
  std::optional<int64_t> smallest;
  std::string reason = "no schedule takes this shape";
  for (const PlannedJobSize& sized : sizes) {
    const std::optional<int64_t>& budget = sized.answer.smallest_budget;
    if (budget) smallest = std::min(smallest.value_or(*budget), *budget);
    if (!sized.answer.left_out.empty()) reason = sized.answer.left_out.front().reason;
  }
  const std::string remedy =
      model.is_measured ? "" : fmt::format("; planned from {}: {}", model.source, kSayRates);
  if (!smallest) return failed_precondition("no plan: {}{}", reason, remedy);
  const std::string stopped = is_cut_short(sizes) ? "; " + stopped_text("some of the schedules") : "";
  return failed_precondition("no plan fits memory_budget; the smallest that works is {} bytes{}", *smallest,
                             stopped);
}

// As training counts it, on every rank.
Status check_memory(const std::string& yaml) {
  PENSTOCK_ASSIGN_OR_RETURN(const JobSpec job, parse_job_spec(yaml));
  if (job.memory_budget_bytes == 0) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<MemoryPrediction> ranks, memory_of_job(job));
  return check_memory_budget(job, ranks);
}

// With the program of a search, which another search would not find again.
StatusOr<std::string> planned_text(const std::string& yaml, const PlannedFields& fields,
                                   const PlannedStep& step, const std::vector<std::string>& notes) {
  PENSTOCK_ASSIGN_OR_RETURN(std::string text, with_planned_fields(yaml, fields, notes));
  if (!step.program) return text;
  return with_schedule_program(text, *step.program);
}

StatusOr<AutoPlan> first_accepted(const std::string& yaml, const AutoFields& asked,
                                  const std::vector<PlannedJobSize>& sizes, const LayerCostModel& model) {
  Status refusal = no_plan(sizes, model);
  std::vector<Refused> refused;
  for (const Candidate& candidate : candidates_of(sizes)) {
    AutoPlan plan;
    plan.notes = notes_of(asked, sizes, candidate, refused, model);
    StatusOr<std::string> text = planned_text(yaml, fields_of(asked, candidate), *candidate.step, plan.notes);
    Status status = text.status();
    if (status.code() == StatusCode::kFailedPrecondition)
      return status;  // no other plan could be written either
    if (status.ok()) status = check_memory(*text);
    if (status.ok()) {
      plan.yaml = *std::move(text);
      return plan;
    }
    refused.push_back({candidate, message(status)});
    refusal = status;
  }
  return refusal;
}

// --- a job that goes on.

// Whether the running job's schedule is one that the file can name, on as many ranks.
bool can_stay(const JobSpec& job, const JobSpec& running) {
  const std::string& schedule = running.parallel.schedule;
  const bool is_name = is_searched_schedule(schedule) || known_schedule(schedule) == Known::Built;
  const bool is_as_many = !job.lines.contains("parallel.stages_per_rank") ||
                          job.parallel.stages_per_rank == running.parallel.stages_per_rank;
  return is_name && is_as_many && job.parallel.pipeline == running.parallel.pipeline &&
         job.microbatches() == running.microbatches();
}

PlannedFields fields_of_running(const AutoFields& asked, const JobSpec& job, const JobSpec& running) {
  PlannedFields fields;
  fields.schedule = running.parallel.schedule;
  fields.stages_per_rank = running.parallel.stages_per_rank;
  if (asked.split && running.stages() > 1) fields.split = running.parallel.split;
  if (!job.lines.contains("recompute")) fields.recompute = running.recompute;
  return fields;
}

// --- the split alone.

struct Gain {
  PlanningRequest request;  // without its budget
  PlannedStep best;
  int64_t equal_counts_ns = 0;
  bool is_cut_short = false;

  double of_step() const {
    return 1 - static_cast<double>(best.step_ns) / static_cast<double>(equal_counts_ns);
  }
};

// Nothing where another split cannot help or is not known: stages on two ranks, no split within the budget, equal counts.
StatusOr<std::optional<Gain>> gain_of_split(const JobSpec& job, const LayerCostModel& model,
                                            const StartTimer& start_timer) {
  JobPlanningOptions options;
  options.only_plans = true;
  if (start_timer) options.keep_going = start_timer(kPlanningSeconds);
  PENSTOCK_ASSIGN_OR_RETURN(PlanningRequest request, planning_request(job, model, options));
  const StatusOr<PlanningAnswer> answer = plan_training(request);
  if (!answer.ok() || answer->plans.empty()) return std::nullopt;
  request.budget_bytes.clear();
  const StatusOr<PlannedStep> equal =
      simulate_split(request, request.asked, boundaries_of(job.parallel.split));
  if (!equal.ok() || equal->partition.boundaries == answer->plans.front().partition.boundaries)
    return std::nullopt;
  return Gain{std::move(request), answer->plans.front(), equal->step_ns, answer->is_cut_short};
}

}  // namespace

StatusOr<LayerCostModel> cost_model_for(const JobSpec& job, const CostSources& sources) {
  if (sources.profile) return *sources.profile;
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<LayerCostModel> emulated, emulated_model(job));
  if (emulated) return *emulated;
  if (!job.device.emulated()) return rates_model(sources.rates);
  return invalid_argument(
      "{}: expected costs by layer ({{layers: {{embedding: ..., block: ..., head: ...}}}}), which follow a plan, found costs "
      "by stage",
      place_of(job, "device.costs"));
}

StatusOr<AutoPlan> plan_schedule_and_sizes(const std::string& yaml, const CostSources& sources,
                                           const StartTimer& start_timer) {
  PENSTOCK_ASSIGN_OR_RETURN(AutoFields asked, auto_fields(yaml));
  if (!asked.schedule && !asked.microbatch_size) return AutoPlan{yaml, {}};
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<JobSpec> jobs, jobs_to_plan(yaml));
  const JobSpec& job = jobs.front();
  if (asked.schedule && !asked.split) {
    return invalid_argument(
        "{}: expected auto, or nothing, beside `schedule: auto`, which plans the split with the schedule",
        place_of(job, "parallel.split"));
  }
  if (is_too_large(job))
    return invalid_argument(
        "`auto`: expected at most {} forwards of a step (stages x microbatches), found {}", kPlannedWorksMax,
        job.microbatches() * job.stages());
  if (!asked.schedule) PENSTOCK_RETURN_IF_ERROR(check_can_choose_size(job));
  PENSTOCK_ASSIGN_OR_RETURN(const LayerCostModel model, cost_model_for(job, sources));
  asked.split = asked.split && may_choose_split(job, model);
  JobPlanningOptions options;
  if (asked.schedule) options.among = schedules_for(job);
  options.keeps_split = !asked.split;
  options.only_plans = true;
  if (start_timer) limit_time(jobs, start_timer, options);
  const bool plans_recomputation =
      asked.schedule && job.memory_budget_bytes > 0 && !job.lines.contains("recompute");
  if (plans_recomputation) options.recomputation = Recomputation::Planned;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<PlannedJobSize> sizes, plan_sizes(jobs, model, options));
  return first_accepted(yaml, asked, sizes, model);
}

StatusOr<AutoPlan> keep_plan(const std::string& yaml, const JobSpec& running) {
  AutoPlan plan{yaml, {}};
  PENSTOCK_ASSIGN_OR_RETURN(const AutoFields asked, auto_fields(yaml));
  if (asked.microbatch_size) {
    const int64_t size = running.train.microbatch_size;
    PENSTOCK_ASSIGN_OR_RETURN(plan.yaml, with_microbatch_size(yaml, size));
    plan.notes.push_back(fmt::format("microbatch_size: auto stays {}, as the job runs", size));
  }
  if (!asked.schedule) return plan;
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<JobSpec> jobs, jobs_to_plan(plan.yaml));
  if (!can_stay(jobs.front(), running)) return plan;
  PENSTOCK_ASSIGN_OR_RETURN(plan.yaml,
                            with_planned_fields(plan.yaml, fields_of_running(asked, jobs.front(), running)));
  plan.notes.push_back(fmt::format("schedule: auto stays {}, as the job runs", running.parallel.schedule));
  if (running.parallel.program.empty()) return plan;
  PENSTOCK_ASSIGN_OR_RETURN(const ComputeProgram program, compute_program(running));
  PENSTOCK_ASSIGN_OR_RETURN(plan.yaml, with_schedule_program(plan.yaml, program));
  return plan;
}

StatusOr<AutoPlan> plan_split(const std::string& yaml, const CostSources& sources,
                              const StartTimer& start_timer) {
  const AutoPlan stays{yaml, {}};
  PENSTOCK_ASSIGN_OR_RETURN(const AutoFields asked, auto_fields(yaml));
  if (!asked.split) return stays;
  PENSTOCK_ASSIGN_OR_RETURN(const JobSpec job, parse_job_spec(yaml));
  if (job.parallel.pipeline == 1 || is_too_large(job)) return stays;
  const StatusOr<LayerCostModel> model = cost_model_for(job, sources);
  if (!model.ok()) return stays;  // costs by stage, which no split changes
  if (!may_choose_split(job, *model)) return stays;
  const StatusOr<std::optional<Gain>> gain = gain_of_split(job, *model, start_timer);
  if (!gain.ok() && !sources.profile) return stays;  // nobody asked for it
  PENSTOCK_RETURN_IF_ERROR(gain.status());
  if (!*gain || (*gain)->best.step_ns >= (*gain)->equal_counts_ns) return stays;
  if (!model->is_measured && (*gain)->of_step() <= model->error) return stays;
  const PlannedStep& best = (*gain)->best;
  AutoPlan plan;
  plan.notes = {fmt::format("split: auto is planned from {}: a step of {}, {} with equal counts",
                            model->source, time_text(best.step_ns), time_text((*gain)->equal_counts_ns))};
  note_stages(job, (*gain)->request, best.partition, *model, plan.notes);
  if ((*gain)->is_cut_short) plan.notes.push_back(stopped_text("some other splits"));
  const Split split = split_of(job.model, best.partition.boundaries);
  PENSTOCK_ASSIGN_OR_RETURN(plan.yaml, with_planned_fields(yaml, {.split = split}, plan.notes));
  return check_memory(plan.yaml).ok() ? plan : stays;
}

}  // namespace penstock::plan
