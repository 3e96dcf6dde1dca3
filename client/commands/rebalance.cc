#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/measured_job.h"
#include "client/commands/resume_job.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "client/present/proposal.h"
#include "plan/rebalancing/judge_move.h"
#include "plan/rebalancing/propose.h"

namespace penstock::client {
namespace {

constexpr double kUnknownMoveSeconds = 10;
constexpr Duration kAskEvery = 300ms;

// From a job's start to its last rank's readiness, as its newest attempt took: what another attempt would take.
double move_seconds(const v1::Job& job) {
  double seconds = kUnknownMoveSeconds;
  int64_t preparing = 0;
  for (const v1::JobEvent& event : job.events()) {
    if (event.state() == v1::JOB_STATE_PREPARING && preparing == 0) preparing = event.unix_ms();
    if (event.state() != v1::JOB_STATE_RUNNING || preparing == 0) continue;
    seconds = static_cast<double>(event.unix_ms() - preparing) / 1e3;
    preparing = 0;
  }
  return seconds;
}

// Of a job that has ended those of another run like it.
int64_t steps_left(const v1::Job& job) {
  return has_ended(job.state()) ? job.steps() : job.steps() - job.step();
}

struct Rebalanced {
  plan::Proposal proposal;
  std::optional<plan::LastMove> last_move;
  plan::SplitDecision decision;
  std::string yaml;  // the job file with the split to go on with, as it will be accepted
};

StatusOr<Rebalanced> rebalanced(const MeasuredJob& measured) {
  Rebalanced result;
  PENSTOCK_ASSIGN_OR_RETURN(result.proposal, plan::propose(measured.spec, measured.runs,
                                                           {.steps_left = steps_left(measured.job),
                                                            .move_seconds = move_seconds(measured.job)}));
  PENSTOCK_ASSIGN_OR_RETURN(result.last_move, plan::judge_last_move(measured.spec, measured.runs));
  result.decision = plan::decide(result.proposal, result.last_move);
  PENSTOCK_ASSIGN_OR_RETURN(result.yaml, plan::with_proposed_split(measured.spec, result.decision.split));
  return result;
}

std::string how_to_go_on(const std::string& name) {
  return fmt::format("`penstock rebalance {} -o job > next.yaml` and `penstock resume {} --with next.yaml`",
                     name, name);
}

// What a person has paused is that person's to resume.
Status check_may_pause(const v1::Job& job) {
  if (job.state() != v1::JOB_STATE_DRAINING && job.state() != v1::JOB_STATE_PAUSED) return ok_status();
  return failed_precondition("job {} is {} (by {}): to go on with the new split, {}", job.name(),
                             name_of(job.state()), job.by(), how_to_go_on(job.name()));
}

// Until the job waits for a person, or has ended.
StatusOr<v1::Job> paused(Coordinator& coordinator, const std::string& name, Duration limit) {
  const SystemClock clock;
  const TimePoint end = clock.now() + limit;
  while (true) {
    PENSTOCK_ASSIGN_OR_RETURN(v1::Job job, coordinator.job(name));
    if (job.state() == v1::JOB_STATE_PAUSED || has_ended(job.state())) return job;
    if (clock.now() >= end) {
      return deadline_exceeded(
          "job {} has not reached its next checkpoint after {:.0f} s: it is paused there; go on then by {}",
          name, to_seconds(limit), how_to_go_on(name));
    }
    std::this_thread::sleep_for(kAskEvery);
  }
}

// A job that its new file does not suit goes on as it was.
StatusOr<v1::JobState> resumed(Coordinator& coordinator, const std::string& name, const std::string& yaml) {
  StatusOr<v1::JobState> state = resume_when_stopped(coordinator, name, yaml);
  if (state.status().code() != StatusCode::kInvalidArgument &&
      state.status().code() != StatusCode::kFailedPrecondition)
    return state;
  const bool goes_on = resume_when_stopped(coordinator, name, "").ok();
  return with_context(state.status(), goes_on ? fmt::format("job {} goes on as it was", name)
                                              : fmt::format("job {} is still paused", name));
}

StatusOr<int> apply(Coordinator& coordinator, const RebalanceOptions& options, const Rebalanced& result,
                    v1::Job job) {
  if (!has_ended(job.state())) {
    PENSTOCK_RETURN_IF_ERROR(check_may_pause(job));
    PENSTOCK_RETURN_IF_ERROR(coordinator.pause(options.name).status());
    say(fmt::format("penstock: job {} goes on to its next checkpoint", options.name));
    PENSTOCK_ASSIGN_OR_RETURN(job,
                              paused(coordinator, options.name, std::chrono::seconds(options.wait_seconds)));
  }
  if (has_ended(job.state())) {
    say(fmt::format("penstock: job {} has ended; submit what `penstock rebalance {} -o job` prints",
                    options.name, options.name));
    return kExitUnchanged;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobState state, resumed(coordinator, options.name, result.yaml));
  say(fmt::format("penstock: job {} {} with the new split; see what came of it with `penstock curves {}`",
                  options.name, name_of(state), options.name));
  return kExitSucceeded;
}

}  // namespace

int rebalance(const RebalanceOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<MeasuredJob> measured = measured_job(**coordinator, options.name);
  if (!measured.ok()) return report_error(measured.status());
  const StatusOr<Rebalanced> result = rebalanced(*measured);
  if (!result.ok()) return report_error(result.status());
  if (options.output == "json") {
    print(compact(proposal_json(options.name, result->proposal, result->last_move)) + "\n");
  } else if (options.output == "job") {
    print(result->yaml);
  } else {
    print(proposal_text(result->proposal, result->last_move));
  }
  if (!options.apply) return kExitSucceeded;
  if (result->decision.verdict == plan::SplitVerdict::Stay) return kExitUnchanged;
  const StatusOr<int> applied = apply(**coordinator, options, *result, measured->job);
  return applied.ok() ? *applied : report_error(applied.status());
}

}  // namespace penstock::client
