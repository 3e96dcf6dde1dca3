// One job as the core holds it: what is recorded, and what of its last attempt is alive.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/assignment/assignment.h"
#include "coordinator/core/event.h"
#include "coordinator/core/jobs/log_ring.h"
#include "coordinator/core/jobs/measurements.h"
#include "coordinator/core/jobs/rebalancing.h"
#include "coordinator/core/jobs/step_window.h"
#include "coordinator/core/jobs/traces.h"
#include "coordinator/core/records.h"

namespace penstock::coordinator {

// A rank of the running attempt.
struct RankState {
  std::string worker{};
  int64_t incarnation = 0;
  int device = 0;
  bool assigned = false;
  bool ready = false;
  bool finished = false;
  bool dead = false;          // its daemon saw its process die; ExecutorStopped follows
  std::string fingerprint{};  // of its arithmetic, once ready
  std::vector<ParameterDigest> digests{};
};

// A checkpoint of which some ranks have written their part.
struct PendingCheckpoint {
  std::vector<bool> told{};  // [rank]
  int count = 0;
  std::string problem{};  // of the first rank that could not
};

// A rank has said that it failed, but another's death may be the cause: see Options::settling.
struct Suspicion {
  std::string reason{};
  TimePoint since{};
  TimePoint decide_at{};
};

struct Attempt {
  int64_t number = 0;
  int64_t order = 0;  // among the attempts of all jobs
  std::vector<RankState> ranks{};
  bool durable = false;                       // its number is on disk
  std::shared_ptr<const AttemptPlan> plan{};  // until the ranks are assigned
  size_t assigned = 0;                        // ranks that have been told, in order
  std::vector<std::string> hosts{};           // [rank]
  std::vector<RankIndex> loss_ranks{};        // ascending: their parts are added in this order
  std::vector<RankIndex> validation_loss_ranks{};
  StepWindow window;
  WeightsPlace weights{};
  WeightsPlace checkpoints{};
  int64_t first_step = 0;  // what was done before it
  std::string load_from{};
  std::string loaded_fingerprint{};  // of the arithmetic that made it; "": not known
  std::map<int64_t, PendingCheckpoint> pending_checkpoints{};  // by step
  int64_t last_checkpoint = 0;                                 // all ranks have told of it, or of its failure
  int committing = 0;                                          // checkpoints on their way to the disk
  std::string weights_digest{};                                // of its result, once all ranks have told
  int64_t durable_before = 0;                                  // the job's durable_step when it began
  TimePoint began{};                                           // when it was placed, or the move to it began
  std::optional<TimePoint> prepare_by{};                       // set once it is planned
  int ready = 0;
  int finished = 0;
  std::optional<Suspicion> suspicion{};
  TimePoint progressed{};    // when it began to run or committed a step last
  std::string stalled_by{};  // what was said of the stall that goes on
  TimePoint ready_said{};    // when its readiness was logged last
};

// The end that a job shows once it is durable.
struct Ending {
  Ticket ticket = 0;
  JobStatus status;
};

struct Job {
  JobDefinition definition{};
  JobStatus status;
  std::shared_ptr<const plan::JobSpec> spec{};  // null once ended
  bool admitted = false;                        // durable, and so visible
  Ticket created = 0;                           // ticket of its first save

  std::deque<JobEventView> events{};
  int64_t next_event = 0;
  int notes = 0;                            // events since the last transition
  std::vector<double> losses{};             // from definition.first_step on
  size_t losses_in_store = 0;               // of an ended job, and not above: how many there are
  std::deque<ValidationView> validation{};  // at most kValidationsKept
  std::vector<StageView> stages{};
  std::vector<RankMemoryView> memory{};  // [rank] of the last attempt
  bool memory_saved = true;              // as it is
  Traces traces{};
  Measurements measurements{};
  SplitWatch split_watch{};
  // Splits with which one attempt failed before its first step, at most kMostUndone. A coordinator that restarts forgets them.
  std::vector<std::string> failed_starts{};
  double start_seconds =
      10;  // of its last attempt that came to run, with the stop before it in a move; a guess before
  std::deque<double> recent_step_seconds{};  // of the last committed steps
  LogRing log;
  uint64_t version = 1;

  std::optional<Attempt> attempt{};  // while its ranks may run
  std::optional<Ending> ending{};
  int64_t last_order = 0;               // of the last attempt; stays when it has ended
  WeightsPlace last_checkpoints{};      // of the last attempt; stays when it has ended
  bool looking_for_checkpoint = false;  // a LookForCheckpoint is not answered yet
  std::vector<RankPlacement> placed{};  // of the last attempt, by rank; stays when it has ended
  int executors_left = 0;               // ranks of the last attempt whose executor may be alive

  int64_t steps_saved = 0;  // losses up to here are in the store
  int64_t step_saved = 0;   // committed ones of the last save of progress; emulated devices have no losses
  int64_t validation_saved = 0;  // validation up to this step is in the store
  bool saving_progress = false;
  TimePoint recover_at{};   // while Recovering: not placed before
  std::string paused_by{};  // while Draining: who asked for it
  // It moves of its own accord, since then: nobody else is placed where it was (`placed`) before it is again.
  std::optional<TimePoint> moving_since{};
  TimePoint stages_saved_at{};
  TimePoint measurements_saved_at{};

  // To be written now.
  std::vector<ValidationView> take_unsaved_validation() {
    std::vector<ValidationView> unsaved;
    for (const ValidationView& each : validation) {
      if (each.step > validation_saved) unsaved.push_back(each);
    }
    if (!unsaved.empty()) validation_saved = unsaved.back().step;
    return unsaved;
  }

  const std::string& name() const { return definition.name; }
  bool ended() const { return has_ended(status.state); }
  // Still decides about its own fate: neither ended nor about to.
  bool live() const { return !ended() && !ending; }
};

}  // namespace penstock::coordinator
