// What outlives the coordinator process, as values: rows to write, and jobs as they are read back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/core/jobs/measurements.h"
#include "coordinator/core/jobs/rebalancing.h"
#include "coordinator/core/jobs/traces.h"
#include "coordinator/core/views.h"

namespace penstock::coordinator {

// Fixed at submission, but for what goes with its file: a person or a move of its layers may give it another one.
struct JobDefinition {
  std::string name{};
  std::string request_id{};
  std::string principal{};
  std::string spec_yaml{};
  std::string schedule{};
  int64_t sequence = 0;  // order of submission
  int64_t submitted_unix_ms = 0;
  int64_t steps = 0;
  int64_t tokens_per_step = 0;
  int ranks = 0;
  int stages = 0;
  int64_t microbatches = 0;
  std::string checkpoints{};  // their directory; below Options::weights_root where it is relative; "": none
  // Losses of the steps before it were summed in another order (plan::other_sums): done again, they come out otherwise.
  int64_t sums_since = 0;
  std::string started_from{};  // another job's checkpoint, with which it began; "": none
  int64_t first_step = 0;      // steps that it holds; the job's own losses begin there
  SplitMoves moves{};
  std::string
      submitted_yaml{};  // the file that it was submitted with, once it goes on with another one; "": spec_yaml
  bool operator==(const JobDefinition&) const = default;
};

struct JobStatus {
  JobState state = JobState::Queued;
  std::string reason{};
  std::string by{};
  int64_t since_unix_ms = 0;
  int64_t attempt = 0;          // number of the last one; 0: none yet
  int64_t started_unix_ms = 0;  // of the first attempt; 0: none yet
  int64_t step = 0;             // committed steps
  std::optional<double> loss{};
  std::optional<double> tokens_per_second{};
  std::optional<double> step_seconds{};
  std::string weights_digest{};  // of the newest checkpoint, then of the final weights
  int64_t durable_step = 0;      // steps that the newest checkpoint holds
  int64_t restarts = 0;          // attempts that followed a failed one
  int64_t barren_attempts = 0;   // failed ones, behind one another, without a new checkpoint
  int exit_code = 0;
  bool operator==(const JobStatus&) const = default;
};

// Where a rank's executor may be alive.
struct RankPlacement {
  RankIndex rank{};
  std::string worker{};
  int64_t incarnation = 0;
  int device = 0;  // index of the device slot
  bool operator==(const RankPlacement&) const = default;
};

struct CreateJob {
  JobDefinition definition{};
  JobStatus status{};
};
// Of a job that goes on with another file, or whose move is judged.
struct PutDefinition {
  JobDefinition definition{};
};
struct PutStatus {
  std::string job{};
  JobStatus status{};
};
// Event number `sequence` of the job, from 0: a new one, or the last one again, which it replaces. The newest `kept`
// are kept.
struct AddEvent {
  std::string job{};
  int64_t sequence = 0;
  int64_t kept = 100;
  JobEventView event{};
};
struct AddLosses {
  std::string job{};
  int64_t first_step = 0;  // counted from the job's own first one
  std::vector<double> losses{};
};
// In order of steps. The newest kValidationsKept are kept.
struct AddValidation {
  std::string job{};
  std::vector<ValidationView> losses{};
};
// Forgets those beyond the step.
struct DropValidation {
  std::string job{};
  int64_t beyond = 0;
};
struct PutStages {
  std::string job{};
  std::vector<StageView> stages{};
};
// What the ranks hold; [rank].
struct PutMemory {
  std::string job{};
  std::vector<RankMemoryView> ranks{};
};
// All ranks of a traced step; [rank].
struct PutTrace {
  std::string job{};
  int64_t step = 0;
  std::vector<TraceBytes> ranks{};
};
struct DropTrace {
  std::string job{};
  int64_t step = 0;
};
// Of one attempt, in place of what was stored of it.
struct PutMeasurements {
  std::string job{};
  AttemptMeasurements measurements{};
};
// Forgets attempts whose number is lower.
struct DropMeasurements {
  std::string job{};
  int64_t below = 0;
};
struct PutAttempt {
  std::string job{};
  int64_t attempt = 0;
  int64_t order = 0;  // of all attempts of all jobs: on one device only the newest can be alive
  std::vector<RankPlacement> ranks{};
};
// Every executor of the job's attempts is gone.
struct ForgetAttempt {
  std::string job{};
};
struct DropJob {
  std::string job{};
};

// Why a worker, known by its name, gets no new ranks.
struct Cordon {
  std::string by{};
  int64_t since_unix_ms = 0;
  bool operator==(const Cordon&) const = default;
};
struct PutCordon {
  std::string worker{};
  Cordon cordon{};
};
struct DropCordon {
  std::string worker{};
};

using Write = std::variant<CreateJob, PutDefinition, PutStatus, AddEvent, AddLosses, AddValidation,
                           DropValidation, PutStages, PutMemory, PutTrace, DropTrace, PutMeasurements,
                           DropMeasurements, PutAttempt, ForgetAttempt, DropJob, PutCordon, DropCordon>;

struct StoredJob {
  JobDefinition definition{};
  JobStatus status{};
  std::vector<JobEventView> events{};  // oldest first
  int64_t next_event = 0;              // sequence of the next one
  std::vector<double> losses{};        // of a job that has not ended, from its first step on
  size_t losses_in_store = 0;          // of one that has
  std::vector<ValidationView> validation{};
  std::vector<StageView> stages{};
  std::vector<RankMemoryView> memory{};                   // [rank]
  std::map<int64_t, std::vector<TraceBytes>> traces{};    // by step; [rank]
  std::map<int64_t, AttemptMeasurements> measurements{};  // by attempt
  int64_t placed_order = 0;
  int64_t placed_attempt = 0;  // whose executors may be alive; 0: none
  std::vector<RankPlacement> placed{};
};

// What a store must answer after a sequence of writes: the specification that every store is tested against.
// Writes that name an unknown job are ignored.
class Archive {
 public:
  void apply(const Write& write);
  std::vector<StoredJob> jobs()
      const;  // by order of submission; of those that have ended, without their losses
  const StoredJob* find(const std::string& job) const;
  const std::map<std::string, Cordon>& cordons() const { return cordons_; }  // by worker

 private:
  std::map<std::string, StoredJob> jobs_{};
  std::map<std::string, Cordon> cordons_{};
};

}  // namespace penstock::coordinator
