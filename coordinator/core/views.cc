#include "coordinator/core/views.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "coordinator/core/core.h"
#include "coordinator/core/internal/turn.h"

namespace penstock::coordinator {
namespace {

double seconds_of(const JobStatus& status, int64_t unix_ms) {
  if (status.started_unix_ms == 0) return 0;
  const int64_t end = has_ended(status.state) ? status.since_unix_ms : unix_ms;
  return static_cast<double>(std::max<int64_t>(0, end - status.started_unix_ms)) / 1e3;
}

// Follows from the name, so that it stays true when the state is moved to another place. A job that computed nothing has
// no digest and no weights.
std::string weights_directory(const Options& options, const Job& job) {
  if (options.weights_root.empty() || job.status.state != JobState::Succeeded) return "";
  if (job.status.weights_digest.empty()) return "";
  return fmt::format("{}/{}/weights", options.weights_root, job.name());
}

JobView summary_of(const State& state, const Job& job, int64_t unix_ms) {
  const JobStatus& status = job.status;
  return {.name = job.name(),
          .state = status.state,
          .reason = status.reason,
          .since_unix_ms = status.since_unix_ms,
          .by = status.by,
          .attempt = status.attempt,
          .step = status.step,
          .steps = job.definition.steps,
          .loss = status.loss,
          .tokens_per_second = status.tokens_per_second,
          .step_seconds = status.step_seconds,
          .weights_digest = status.weights_digest,
          .weights_directory = weights_directory(state.options, job),
          .checkpoints_directory = checkpoints_directory(state.options, job),
          .durable_step = status.durable_step,
          .started_from = job.definition.started_from,
          .first_step = job.definition.first_step,
          .restarts = status.restarts,
          .seconds = seconds_of(status, unix_ms),
          .submitted_unix_ms = job.definition.submitted_unix_ms,
          .exit_code = status.exit_code,
          .schedule = job.definition.schedule,
          .ranks = job.definition.ranks,
          .version = job.version};
}

// Whether an executor of the job may still send last words.
bool may_speak(const State& state, const Job& job) {
  return std::any_of(job.placed.begin(), job.placed.end(), [&](const RankPlacement& rank) {
    auto worker = state.fleet.workers.find(rank.worker);
    if (worker == state.fleet.workers.end() || !worker->second.is_open()) return false;
    return std::any_of(worker->second.devices.begin(), worker->second.devices.end(),
                       [&](const Device& device) {
                         return device.holds({job.name(), job.status.attempt, rank.incarnation}, rank.rank);
                       });
  });
}

StatusOr<const Job*> visible(const State& state, const std::string& name) {
  auto found = state.jobs.find(name);
  if (found == state.jobs.end() || !found->second.admitted) return no_such_job(state, name);
  return &found->second;
}

}  // namespace

StatusOr<JobView> view_job(const State& state, const std::string& name, bool include_losses,
                           int64_t unix_ms) {
  PENSTOCK_ASSIGN_OR_RETURN(const Job* job, visible(state, name));
  JobView view = summary_of(state, *job, unix_ms);
  view.spec_yaml = job->definition.spec_yaml;
  view.stages = job->stages;
  view.memory = job->memory;
  view.events.assign(job->events.begin(), job->events.end());
  view.validation.assign(job->validation.begin(), job->validation.end());
  if (include_losses) {
    view.losses = job->losses;
    view.losses_in_store = job->losses_in_store;
  }
  return view;
}

std::vector<JobView> view_jobs(const State& state, int64_t unix_ms) {
  std::vector<const Job*> jobs;
  for (const auto& [name, job] : state.jobs) {
    if (job.admitted) jobs.push_back(&job);
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const Job* a, const Job* b) { return a->definition.sequence < b->definition.sequence; });
  std::vector<JobView> views;
  for (const Job* job : jobs) views.push_back(summary_of(state, *job, unix_ms));
  return views;
}

StatusOr<LogPage> read_log(const State& state, const std::string& name, RankIndex rank, uint64_t cursor,
                           size_t limit) {
  PENSTOCK_ASSIGN_OR_RETURN(const Job* job, visible(state, name));
  LogPage page = job->log.read(cursor, rank, limit);
  page.ended = job->ended() && page.next == job->log.next() && !may_speak(state, *job);
  return page;
}

StatusOr<TraceView> view_trace(const State& state, const std::string& name, std::optional<int64_t> step) {
  PENSTOCK_ASSIGN_OR_RETURN(const Job* job, visible(state, name));
  TraceView view{.spec_yaml = job->definition.spec_yaml, .steps = job->traces.complete()};
  if (view.steps.empty()) {
    return not_found(
        "job {}: no step is traced: {} steps of {} are done, of which step 2 and every trace.every-th tell when their "
        "actions ran (trace: {{every: 0}} traces none)",
        name, job->status.step, job->definition.steps);
  }
  view.step = step.value_or(view.steps.back());
  const TracedStep* traced = job->traces.find(view.step);
  if (traced == nullptr) {
    return not_found("job {}: step {} is not traced, or not kept; kept are {}", name, view.step,
                     fmt::join(view.steps, ", "));
  }
  view.ranks = traced->ranks;
  return view;
}

StatusOr<MeasurementsView> view_measurements(const State& state, const std::string& name) {
  PENSTOCK_ASSIGN_OR_RETURN(const Job* job, visible(state, name));
  MeasurementsView view{.spec_yaml = job->definition.spec_yaml,
                        .step = job->status.step,
                        .steps = job->definition.steps,
                        .stages = job->stages};
  for (const AttemptMeasurements& attempt : job->measurements.attempts()) {
    if (attempt.steps > 0) view.attempts.push_back(attempt);
  }
  if (!view.attempts.empty()) return view;
  return not_found(
      "job {}: nothing is measured yet: {} of {} steps are done, and the first {} of an attempt do not count",
      name, view.step, view.steps, kWarmUpSteps);
}

Census take_census(const State& state) {
  Census census = census_of(state.fleet);
  for (const auto& [name, job] : state.jobs) {
    if (job.admitted) ++census.jobs[static_cast<size_t>(job.status.state)];
  }
  return census;
}

}  // namespace penstock::coordinator
