// One call of apply(): the state that it changes and the commands that it makes. Rules are free functions on a
// Turn.
#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/command.h"
#include "coordinator/core/event.h"
#include "coordinator/core/state.h"

namespace penstock::coordinator {

// The text with a space for every control character: what others say must not forge lines of the log.
std::string one_line(std::string text);
// "1 step", "2 steps".
std::string counted(int64_t count, const std::string& thing);

struct Turn {
  State& state;
  Now now;
  std::vector<Command> commands{};
  bool placing_due = false;  // devices or the queue have changed

  void emit(Command command) { commands.push_back(std::move(command)); }
  // Writes one transaction and returns its ticket.
  Ticket save(std::vector<Write> writes);
  // Does `what` when the ticket is durable.
  void after(Ticket ticket, Continuation what) { state.store.after(ticket, std::move(what)); }

  void send(SessionId session, CoordinatorMessage message);
  void observe(Observation observation) { emit(Observed{std::move(observation)}); }
  void refuse(Refusal refusal);
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    emit(Say{log::Level::Info, one_line(fmt::format(format, std::forward<Args>(args)...))});
  }
  template <typename... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    emit(Say{log::Level::Warning, one_line(fmt::format(format, std::forward<Args>(args)...))});
  }
};

// Behind those that are there.
inline void append(std::vector<Write>& writes, std::vector<Write> more) {
  std::move(more.begin(), more.end(), std::back_inserter(writes));
}

// jobs.cc: states, submission, cancellation, ends.
void changed(Turn& turn, Job& job);
// Moves the job and adds the event; returns what must be written for both. Stops the process on an illegal
// move.
std::vector<Write> move_job(Turn& turn, Job& job, JobState state, const std::string& reason,
                            const std::string& by);
// The same for a status that is written already.
// Returns the event's sequence.
int64_t enter(Turn& turn, Job& job, JobStatus status);
// Gives the reason an event of its own, without a transition.
void note(Turn& turn, Job& job, const std::string& reason, const std::string& by = "coordinator");
void set_reason(Turn& turn, Job& job, const std::string& reason, bool logged = true);
void on_restore(Turn& turn, Restore event);
void on_submit(Turn& turn, Submit event);
void on_cancel(Turn& turn, const Cancel& event);
void admit_job(Turn& turn, const std::string& name);
// As JobDefinition::checkpoints has it.
std::string checkpoints_of(const plan::JobSpec& spec, const std::string& name);
Status no_such_job(const State& state, const std::string& name);

// answers.cc
void answer_when_durable(Turn& turn, PendingAnswer pending);
void answer_durable(Turn& turn);
// Gives an error to who has waited for the store for too long.
void answer_impatient(Turn& turn);
// ResourceExhausted or Unavailable while saves fail.
Status store_trouble(const State& state);

// stalls.cc
Duration stall_limit(const std::deque<double>& recent_step_seconds, const Options& options);
void check_stall(Turn& turn, Job& job);
void progress_made(Turn& turn, Job& job);

// ending.cc
struct End {
  JobState state = JobState::Failed;
  std::string reason{};
  std::string by = "coordinator";
  ExitCode exit_code = ExitCode::Failed;
  std::string weights_digest{};  // of a job that has succeeded
};
// What is not in the store yet of a job's steps.
std::vector<Write> unsaved_progress(Job& job);
// Adds what its ranks hold, where it has changed since it was written.
void save_memory(Job& job, std::vector<Write>& writes);
// What is stored of the newest attempt's measurements; nothing where it has none.
std::vector<Write> measured(const Job& job);
// Forgets what its attempts took.
std::vector<Write> without_measurements(Job& job);
// Ends a live job: its other ranks are told at once, the state is shown when it is durable.
void begin_ending(Turn& turn, Job& job, const End& end);
void fail_job(Turn& turn, Job& job, const std::string& reason);
// Stops the ranks of the attempt, if there is one.
void end_attempt(Turn& turn, Job& job, const std::string& reason);
void finish_ending(Turn& turn, const std::string& name);
void retire_jobs(Turn& turn);
void trim_losses(State& state);
// The rank's executor is gone; its device is free already.
void executor_gone(Turn& turn, const AttemptKey& attempt);

// pausing.cc
void on_pause(Turn& turn, const Pause& event);
void on_resume(Turn& turn, const Resume& event);
// What is done again is reported anew, where it need not come out the same to the bit.
std::vector<Write> without_steps_beyond_checkpoint(Job& job);
// Ends the attempt of a job that waits for a person then. The ticket of what is written.
Ticket become_paused(Turn& turn, Job& job, const std::string& reason, const std::string& by);

// definitions.cc: a job that goes on with another file.
// What follows from it. Its checkpoints stay where they are.
Write redefined(Job& job, const std::shared_ptr<const plan::JobSpec>& spec);
// They would be shown against the new file, whose ranks are others.
std::vector<Write> without_traces(Job& job);

// rebalancing.cc
// Of a job that may have a better split; nothing where its present one is not measured.
std::optional<SplitQuestion> question_on_split(const Job& job);
// A running job has a new checkpoint: it moves, if that is what it waited for, or its split is asked about.
void move_or_ask(Turn& turn, Job& job);
void on_split_considered(Turn& turn, SplitConsidered event);
// The answer came with the attempt's plan, which is of its spec where it has one.
void start_with_split(Turn& turn, Job& job, SplitAnswer answer);
// Its attempt is the first that may do steps with the split of its last move: a failure may be the split's.
bool tries_split(const Job& job);
// A move that is taken back.
struct TakenBack {
  std::string words{};  // for the reason of what happens then
  std::vector<Write> writes{};
};
// Takes the last move back, where tries_split(); else nothing. The second time the split is never tried again.
std::optional<TakenBack> without_move(Job& job);

// cordons.cc
void on_drain(Turn& turn, const Drain& event);
void on_uncordon(Turn& turn, const Uncordon& event);

// recovery.cc
// Of a failure: what was run, or where.
enum class Cause : uint8_t { Attempt, Worker };
// Ends the attempt; the job goes on with another one, or fails, as its file says. A move that no step was done with is taken
// back where that may help, and then the failure does not count.
void fail_attempt(Turn& turn, Job& job, const std::string& reason, Cause cause = Cause::Attempt);
// Ends the attempt of a job that gets another one; `more` is written with that.
void recover(Turn& turn, Job& job, const std::string& reason, Duration delay, std::vector<Write> more = {});
// Queues a Recovering job whose executors are gone.
void place_again(Turn& turn, Job& job);
// Puts the job where it was: by order of submission.
void enqueue(Turn& turn, const Job& job);

// checkpoints.cc
std::string checkpoints_directory(const Options& options, const Job& job);  // "": none
// AlreadyExists, with the other job's name: a live job other than `job` keeps its checkpoints there. `directory` is as
// JobDefinition::checkpoints has it.
Status is_free_for_checkpoints(const State& state, const std::string& directory, const std::string& job);
// Of a job that a coordinator before may have left with a newer one than it recorded.
void look_for_checkpoint(Turn& turn, Job& job);
void on_checkpoint_found(Turn& turn, const CheckpointFound& event);
void checkpoint_written(Turn& turn, Job& job, const CheckpointWritten& report);
// Of those that all ranks have told of.
void commit_checkpoints(Turn& turn, Job& job);
void steps_recorded(Turn& turn, const std::string& name, int64_t order, int64_t step);
void on_checkpoint_committed(Turn& turn, const CheckpointCommitted& event);

// attempts.cc: placing, planning, assigning, results.
void place_queue(Turn& turn);
void on_planned(Turn& turn, AttemptPlanned event);
void on_weights_committed(Turn& turn, const WeightsCommitted& event);
void start_attempt(Turn& turn, const std::string& name, int64_t attempt);
void assign_more(Turn& turn);
void rank_ready(Turn& turn, Job& job, const RankReady& report);
void rank_finished(Turn& turn, Job& job, RankFinished report);
// Once every rank has its result in, and every checkpoint is on the disk.
void succeed_when_finished(Turn& turn, Job& job);
// Keeps the first failure that a rank reports of itself; fail_attempt when a better-founded one comes.
void suspect(Turn& turn, Job& job, const std::string& reason);
void check_deadlines(Turn& turn, Job& job);

// steps.cc
void commit_steps(Turn& turn, Job& job);
void save_progress(Turn& turn, Job& job);
// Writes a traced step to which a rank has added, once it is complete, and drops what it takes the place of.
void keep_trace(Turn& turn, Job& job, int64_t step);

// reports.cc: what sessions say.
void on_said(Turn& turn, SessionSaid event);

// workers.cc: sessions and time.
void on_opened(Turn& turn, SessionOpened event);
void on_closed(Turn& turn, const SessionClosed& event);
void on_tick(Turn& turn);
// Tells the worker's stopping executors to stop, when they have not been told for a while.
void send_due_aborts(Turn& turn, Worker& worker);

// brokering.cc
void on_publish(Turn& turn, Publish event);
void on_look_up(Turn& turn, const LookUp& event);
void on_abandoned(Turn& turn, const LookUpAbandoned& event);
void answer_overdue(Turn& turn);
void answer(Turn& turn, std::vector<Broker::Answer> answers);

}  // namespace penstock::coordinator
