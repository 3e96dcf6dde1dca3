// What can happen to the coordinator. Everything that it knows of the world arrives as one of these.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/core/jobs/rebalancing.h"
#include "coordinator/core/records.h"
#include "coordinator/core/session.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

struct AttemptPlan;  // assignment/assignment.h

using ReplyId = uint64_t;  // names the asker of one answer; never used twice
using Ticket = uint64_t;   // numbers the transactions of the store, from 1

// First event of a process: what the store held.
struct Restore {
  std::vector<StoredJob> jobs{};
  std::map<std::string, Cordon> cordons{};  // by worker
};
// A job file that check_job has accepted.
struct Submit {
  ReplyId reply = 0;
  std::string principal{};
  std::string request_id{};
  std::shared_ptr<const plan::JobSpec> spec{};
};
struct Cancel {
  ReplyId reply = 0;
  std::string job{};
  std::string principal{};
};
struct Pause {
  ReplyId reply = 0;
  std::string job{};
  std::string principal{};
};
struct Resume {
  ReplyId reply = 0;
  std::string job{};
  std::string principal{};
  std::shared_ptr<const plan::JobSpec>
      spec{};  // to go on with, which check_job has accepted; null: as it was
};
struct Drain {
  ReplyId reply = 0;
  std::string worker{};
  std::string principal{};
};
struct Uncordon {
  ReplyId reply = 0;
  std::string worker{};
  std::string principal{};
};
struct SessionOpened {
  SessionId session = 0;
  Registration registration;
};
struct SessionSaid {
  SessionId session = 0;
  WorkerMessage message;
};
struct SessionClosed {
  SessionId session = 0;
  std::string reason{};
};
struct Publish {
  ReplyId reply = 0;
  CommunicatorKey key{};
  std::string value{};
};
struct LookUp {
  ReplyId reply = 0;
  CommunicatorKey key{};
  TimePoint deadline{};
};
struct LookUpAbandoned {
  ReplyId reply = 0;
};
// The answer to PlanAttempt.
struct AttemptPlanned {
  std::string job{};
  int64_t order = 0;  // as in PlanAttempt
  Status status;      // when it is not OK there is no plan
  std::shared_ptr<const AttemptPlan> plan{};
  std::string load_from{};             // checkpoint that the attempt starts from; "": none
  int64_t first_step = 0;              // steps that it holds
  std::string other_job{};             // whose it is, where it is not the job's own; "": its own
  std::string fingerprint{};           // of the arithmetic that made it; "": not known
  std::vector<std::string> refused{};  // newer checkpoints, and why they are not used
  std::optional<SplitAnswer> split{};  // to PlanAttempt's question; the plan is of its spec, where it has one
};
// The answer to ConsiderSplit.
struct SplitConsidered {
  std::string job{};
  int64_t order = 0;  // of the attempt
  SplitAnswer answer{};
};
// The answer to CommitWeights.
struct WeightsCommitted {
  std::string job{};
  int64_t order = 0;  // of the attempt
  WeightsPlace weights{};
  Status status;
};
// The answer to CommitCheckpoint.
struct CheckpointCommitted {
  std::string job{};
  int64_t order = 0;  // of the attempt
  int64_t step = 0;
  Status status;
  std::string weights_digest{};
};
// The answer to LookForCheckpoint.
struct CheckpointFound {
  std::string job{};
  int64_t step = 0;  // 0: none
  std::string weights_digest{};
};
// All saves up to `ticket` are durable.
struct StoreDurable {
  Ticket ticket = 0;
};
// Why the store's saves fail now, or OK when they succeed again.
struct StoreHealth {
  Status status;
};
// The answer to CallAgain.
struct AssignMore {};
// Time has passed; comes every 100 ms or so.
struct Tick {};

using Event = std::variant<Restore, Submit, Cancel, Pause, Resume, Drain, Uncordon, SessionOpened,
                           SessionSaid, SessionClosed, Publish, LookUp, LookUpAbandoned, AttemptPlanned,
                           SplitConsidered, WeightsCommitted, CheckpointCommitted, CheckpointFound,
                           StoreDurable, StoreHealth, AssignMore, Tick>;

struct Now {
  TimePoint time{};     // for decisions
  int64_t unix_ms = 0;  // for people and records
};

}  // namespace penstock::coordinator
