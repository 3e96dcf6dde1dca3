// What the core wants done. Commands of one apply() are carried out in order.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "coordinator/core/event.h"
#include "coordinator/core/probe.h"

namespace penstock::coordinator {

struct AnswerSubmit {
  ReplyId reply = 0;
  StatusOr<SubmitOutcome> outcome;
};
// To a Cancel, a Pause or a Resume.
struct AnswerControl {
  ReplyId reply = 0;
  StatusOr<JobState> state;
  const char* what = "cancel";  // or "pause", "resume"
};
// To a Drain or an Uncordon: the worker's devices.
struct AnswerWorker {
  ReplyId reply = 0;
  StatusOr<std::vector<WorkerView>> devices;
  const char* what = "drain";  // or "uncordon"
};
struct AnswerPublish {
  ReplyId reply = 0;
  Status status;
};
struct AnswerLookUp {
  ReplyId reply = 0;
  StatusOr<std::string> value;
};
// When the session does not take it, a SessionClosed must follow.
struct SendToWorker {
  SessionId session = 0;
  CoordinatorMessage message;
};
// Nothing is sent to the session after this.
struct CloseSession {
  SessionId session = 0;
  Status status;
};
// Where an attempt's checkpoints go, and what it may start from.
struct CheckpointsOfAttempt {
  WeightsPlace place{};  // no directory: none are written
  bool is_own = true;    // below the coordinator's state, and nobody else's
  // Steps on record; without any of its own it starts from nothing, or from spec->restart.from.
  int64_t latest_step = 0;
};
// Wants an AttemptPlanned of plan_attempt(*spec), once weights and checkpoints have their folders and the newest whole
// checkpoint is found; a folder that cannot be made is a plan that fails.
struct PlanAttempt {
  std::string job{};
  int64_t order = 0;  // of the attempt, among those of all jobs: a later job may have the name
  std::shared_ptr<const plan::JobSpec> spec{};
  WeightsPlace weights{};
  CheckpointsOfAttempt checkpoints{};
  std::optional<SplitQuestion> question{};  // of a job that may start with a better split
};
// Wants a SplitConsidered.
struct ConsiderSplit {
  std::string job{};
  int64_t order = 0;  // of the attempt
  SplitQuestion question{};
};
// Every rank has written its part, and all steps before it are on record. Wants a CheckpointCommitted.
struct CommitCheckpoint {
  std::string job{};
  int64_t order = 0;    // of the attempt
  int64_t attempt = 0;  // its number
  int64_t step = 0;
  std::shared_ptr<const plan::JobSpec> spec{};
  WeightsPlace place{};
};
// A part of it was not written: what there is of it comes to nothing.
struct DiscardCheckpoint {
  std::string job{};
  int64_t attempt = 0;
  int64_t step = 0;
  WeightsPlace place{};
};
// Of an attempt that is over, and whose executors are gone: what it has not finished comes to nothing.
struct RemoveDrafts {
  std::string job{};
  WeightsPlace place{};
};
// What a coordinator that died may have committed and not recorded. Wants a CheckpointFound.
struct LookForCheckpoint {
  std::string job{};
  std::string directory{};
  int64_t latest_step = 0;  // steps on record: none of more is meant
};
// Every rank has written its weights. Wants a WeightsCommitted once they are whole.
struct CommitWeights {
  std::string job{};
  int64_t order = 0;  // of the attempt
  std::shared_ptr<const plan::JobSpec> spec{};
  WeightsPlace weights{};
};
// The job did not succeed after all: its weights are not to be seen.
struct DiscardWeights {
  WeightsPlace weights{};
};
// One transaction. Wants StoreDurable once it and all before it are on disk.
struct Save {
  Ticket ticket = 0;
  std::vector<Write> writes{};
};
// The job's version has grown, or it was retired: whoever waits for it looks again.
struct JobChanged {
  std::string job{};
};
struct LogGrew {
  std::string job{};
};
struct Observed {
  Observation observation;
};
// Wants an AssignMore, after the events that wait already: what is left to do must not hold them up.
struct CallAgain {};
// A line for the coordinator's own log.
struct Say {
  log::Level level = log::Level::Info;
  std::string line{};
};

using Command = std::variant<AnswerSubmit, AnswerControl, AnswerWorker, AnswerPublish, AnswerLookUp,
                             SendToWorker, CloseSession, PlanAttempt, ConsiderSplit, CommitWeights,
                             DiscardWeights, CommitCheckpoint, DiscardCheckpoint, RemoveDrafts,
                             LookForCheckpoint, Save, JobChanged, LogGrew, Observed, CallAgain, Say>;

}  // namespace penstock::coordinator
