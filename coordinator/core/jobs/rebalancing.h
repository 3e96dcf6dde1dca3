// What is asked about the split of a job whose file says `rebalance:`, what comes back, and when it is worth asking. The answer
// takes milliseconds to a second and is made away from the core's thread, by coordinator/rebalancing.
//
//     samples enough at a durable checkpoint, or an attempt to plan --> SplitQuestion --> SplitAnswer
//     Move    goes on from the newest checkpoint with the new split; with `propose` it is only said
//     Keep    the last move has paid
//     Undo    it has not: back to the file before, and never again to that split
//
// Only the rebalancer's own moves are judged: a split that a person resumes the job with is that person's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/jobs/measurements.h"
#include "plan/spec/job_spec.h"

namespace penstock::coordinator {

struct AttemptPlan;  // assignment/assignment.h

// What must be new since the last question: medians of less are noise.
struct QuestionLimits {
  int64_t steps = 16;
  int64_t samples = 100;  // of a stage
};
// So many moves that did not pay are enough for a job.
inline constexpr size_t kMostUndone = 16;

// What the rebalancer has done to a job; kept with its definition.
struct SplitMoves {
  std::string file_before{};  // the job file before its last move, until that is judged; "": nothing to judge
  // Splits, as plan::to_text has them, that did not pay, or with which two attempts failed before their first step; at most
  // kMostUndone.
  std::vector<std::string> undone{};

  bool operator==(const SplitMoves&) const = default;
};

struct SplitQuestion {
  std::shared_ptr<const plan::JobSpec> spec{};
  std::vector<AttemptMeasurements> attempts{};  // oldest first; the last one is of the job's split
  SplitMoves moves{};
  int64_t steps_left = 0;
  double move_seconds = 0;  // what stopping and starting takes
};

enum class SplitAdvice : uint8_t {
  Stay,
  Move,
  Keep,
  Undo,
  Fixed,  // no other split is worth a thought: not to be asked again
};

struct SplitAnswer {
  SplitAdvice advice = SplitAdvice::Stay;
  std::string because{};  // with stages and step before and after, where they change
  std::string split{};    // of a Move, as plan::to_text has it
  double gain = 0;        // part of a step: that a Move promises, that an Undo wins back
  // Of a Move or Undo that the job's file lets us apply; null: it is only said.
  std::shared_ptr<const plan::JobSpec> spec{};
  std::shared_ptr<const AttemptPlan> plan{};  // of `spec`
};

// What the core remembers between questions. A coordinator that restarts asks anew.
struct SplitWatch {
  bool asked = false;                    // the answer is not there yet
  int64_t measured_steps = 0;            // of the attempt, when it was asked last
  std::optional<SplitAnswer> decided{};  // waits for the next checkpoint
  bool is_fixed = false;
  bool has_done_steps = false;          // with the job's present split
  std::vector<std::string> proposed{};  // splits that were told of, at most kMostUndone

  // Of an attempt that is over.
  void forget_attempt() {
    asked = false;
    measured_steps = 0;
    decided.reset();
  }
};

// Whether what was measured since the last question is worth another one.
bool question_is_due(const plan::JobSpec& spec, const Measurements& measurements, const SplitWatch& watch,
                     const QuestionLimits& limits);

// What speaks for a move and against it, in steps of the job.
struct MoveWeights {
  bool goes_back =
      false;        // an Undo: it is made whatever it wins, unless it takes longer than the rest of the job
  double gain = 0;  // part of each step that is left
  int64_t steps_since = 0;  // the newest checkpoint: they are done again
  int64_t checkpoint_every = 0;
  int64_t steps_left = 0;  // that have not been done
  double move_steps = 0;   // that could be done while the job stops and starts
};
enum class MoveTime : uint8_t { Now, AtCheckpoint, Never };

// Whether the steps left bring what the move costs, `steps_again` among it.
bool pays(const MoveWeights& weights, int64_t steps_again, int64_t steps_left);

// Now: to do steps again costs no more than the old split until the next checkpoint. Never: the steps left then bring less than
// the move costs.
MoveTime time_to_move(const MoveWeights& weights);

}  // namespace penstock::coordinator
