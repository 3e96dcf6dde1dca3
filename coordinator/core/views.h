// What the coordinator shows of itself: plain copies of its state, made for one answer.
//
// Absent means "not measured yet"; a value is never zero instead.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "coordinator/core/jobs/measurements.h"
#include "coordinator/core/jobs/memory_use.h"

namespace penstock::coordinator {

// Life of a job; core/jobs/lifecycle.h draws the transitions.
enum class JobState : uint8_t {
  Queued,
  Placing,
  Preparing,
  Running,
  Recovering,
  Draining,
  Paused,
  Succeeded,
  Failed,
  Cancelled,
};
inline constexpr int kJobStates = 10;

std::string_view to_string(JobState state);  // "queued", "placing", ...
std::optional<JobState> parse_job_state(std::string_view text);
constexpr bool has_ended(JobState state) {
  return state == JobState::Succeeded || state == JobState::Failed || state == JobState::Cancelled;
}

// What `submit --follow` exits with.
enum class ExitCode : int { Succeeded = 0, Failed = 1, Refused = 2, Cancelled = 3, NoProgress = 4 };

struct StageView {
  StageIndex stage{};
  RankIndex rank{};
  std::string worker{};
  std::vector<std::string> layers{};  // items: "embedding", "0", "head"
  std::optional<double> forward_ms{};
  std::optional<double> backward_ms{};
  std::optional<double> wait_ms{};                  // of the rank, over the step
  std::optional<int64_t> memory_peak_bytes{};       // of the rank, accounted kinds
  std::optional<int64_t> memory_predicted_bytes{};  // of the rank
  std::optional<int32_t> activation_slots{};        // H_s
  std::optional<int32_t> activation_slots_peak{};
  std::optional<double> busy_fraction{};   // of the rank, over the step
  std::optional<int32_t> payload_slots{};  // of the stage's blocks with experts, all kinds together
  std::optional<int32_t> payload_slots_peak{};

  bool operator==(const StageView&) const = default;
};

// Mean loss over the held-out data with the weights after `step` steps.
struct ValidationView {
  int64_t step = 0;
  double loss = 0;

  bool operator==(const ValidationView&) const = default;
};
inline constexpr size_t kValidationsKept = 1000;  // of a job, the newest

struct JobEventView {
  int64_t unix_ms = 0;
  JobState state = JobState::Queued;
  std::string reason{};
  std::string by{};

  bool operator==(const JobEventView&) const = default;
};

struct JobView {
  std::string name{};
  JobState state = JobState::Queued;
  std::string reason{};
  int64_t since_unix_ms = 0;
  std::string by{};
  std::string spec_yaml{};
  int64_t attempt = 0;
  int64_t step = 0;  // committed steps
  int64_t steps = 0;
  std::optional<double> loss{};
  std::optional<double> tokens_per_second{};
  std::optional<double> step_seconds{};
  std::string weights_digest{};              // of the newest checkpoint, then of the final weights
  std::string weights_directory{};           // of a job that has succeeded; "": none is kept
  std::string checkpoints_directory{};       // "": none are written
  int64_t durable_step = 0;                  // steps that the newest checkpoint holds; 0: there is none
  std::string started_from{};                // another job's checkpoint, with which it began; "": none
  int64_t first_step = 0;                    // steps that it holds
  int64_t restarts = 0;                      // attempts that followed a failed one
  std::vector<StageView> stages{};           // by stage and rank
  std::vector<RankMemoryView> memory{};      // [rank]; empty before the first attempt
  size_t losses_in_store = 0;                // when asked for: so many, which the store alone has
  std::vector<double> losses{};              // one a committed step from first_step on; filled when asked for
  std::vector<ValidationView> validation{};  // oldest first, at most kValidationsKept
  double seconds = 0;                        // from the first attempt's start to the end or now
  int64_t submitted_unix_ms = 0;
  int exit_code = 0;  // meaningful once ended
  std::string schedule{};
  std::vector<JobEventView> events{};  // oldest first, at most 100
  int ranks = 0;

  uint64_t version = 0;  // grows with every change that a watcher must see
  bool ended() const { return has_ended(state); }
};

// One device slot of a worker daemon: a daemon with several devices appears once for each.
struct WorkerView {
  std::string name{};
  std::string state{};  // free | assigned | draining | drained | lost
  int64_t pid = 0;
  int64_t executor_pid = 0;  // 0: none
  std::string device{};      // "cpu:0"
  std::string job{};         // "" when free
  RankIndex rank{};          // unset when free
  std::string host{};
  int64_t incarnation = 0;
  int64_t since_unix_ms = 0;
  std::string metrics_address{};
  std::string drained_by{};  // who drained it; "": it takes work
};

struct LogLineView {
  int64_t unix_ms = 0;
  RankIndex rank{};
  std::string worker{};
  std::string text{};
};

// Lines [first, next) of a job's log. Lines before `first` that the reader has not had are gone: `lost`
// counts them.
struct LogPage {
  std::vector<LogLineView> lines{};
  uint64_t next = 0;  // cursor to ask for more
  uint64_t lost = 0;
  bool ended = false;  // the job has ended and no line follows
};

// A traced step of a job: the StepTrace messages of its ranks, as bytes.
struct TraceView {
  std::string spec_yaml{};
  int64_t step = 0;
  std::vector<int64_t> steps{};  // all that are kept, ascending
  std::vector<std::shared_ptr<const std::string>> ranks{};
};

// What the ranks of a job took: its newest attempts, oldest first, and the stages as they are shown.
struct MeasurementsView {
  std::string spec_yaml{};
  int64_t step = 0;
  int64_t steps = 0;
  std::vector<StageView> stages{};
  std::vector<AttemptMeasurements> attempts{};
};

// What submit answers.
struct SubmitOutcome {
  std::string name{};
  std::vector<std::string> notes{};
  int ranks = 0;
  int stages = 0;
  int64_t microbatches = 0;
  std::vector<std::string> stage_items{};  // a line a stage: "embedding 0"
};

}  // namespace penstock::coordinator
