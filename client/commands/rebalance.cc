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
  std::optional<plan::MoveCheck> last_move;
  std::optional<plan::Split> split;  // to go on with; none: stay
  std::string yaml;                  // the job file with it
};

StatusOr<Rebalanced> rebalanced(const MeasuredJob& measured) {
  Rebalanced result;
  PENSTOCK_ASSIGN_OR_RETURN(result.proposal, plan::propose(measured.spec, measured.runs,
                                                           {.steps_left = steps_left(measured.job),
                                                            .move_seconds = move_seconds(measured.job)}));
  PENSTOCK_ASSIGN_OR_RETURN(result.last_move, plan::check_last_move(measured.spec, measured.runs));
  if (result.last_move && !result.last_move->answer.move) {
    result.split = result.last_move->before;
  } else if (result.proposal.answer.move) {
    result.split = result.proposal.best;
  }
  const plan::Split& split = result.split.value_or(measured.spec.parallel.split);
  PENSTOCK_ASSIGN_OR_RETURN(result.yaml, plan::with_proposed_split(measured.spec, split));
  return result;
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
          "job {} has not reached its next checkpoint after {:.0f} s: it is paused there; resume it then with the file that "
          "`penstock rebalance {} -o job` prints",
          name, to_seconds(limit), name);
    }
    std::this_thread::sleep_for(kAskEvery);
  }
}

Status apply(Coordinator& coordinator, const RebalanceOptions& options, const Rebalanced& result,
             v1::Job job) {
  if (!has_ended(job.state()) && job.state() != v1::JOB_STATE_PAUSED) {
    PENSTOCK_RETURN_IF_ERROR(coordinator.pause(options.name).status());
    say(fmt::format("penstock: job {} goes on to its next checkpoint", options.name));
    PENSTOCK_ASSIGN_OR_RETURN(job,
                              paused(coordinator, options.name, std::chrono::seconds(options.wait_seconds)));
  }
  if (has_ended(job.state())) {
    say(fmt::format("penstock: job {} has ended; submit what `penstock rebalance {} -o job` prints",
                    options.name, options.name));
    return ok_status();
  }
  PENSTOCK_ASSIGN_OR_RETURN(const v1::JobState state,
                            resume_when_stopped(coordinator, options.name, result.yaml));
  say(fmt::format("penstock: job {} {} with the new split; see what came of it with `penstock curves {}`",
                  options.name, name_of(state), options.name));
  return ok_status();
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
  if (!options.apply || !result->split) return kExitSucceeded;
  const Status applied = apply(**coordinator, options, *result, measured->job);
  return applied.ok() ? kExitSucceeded : report_error(applied);
}

}  // namespace penstock::client
