// Whether a better plan is worth the move, and whether a move was worth it: the two decisions of rebalancing. They are
// slow to change their mind, since most of what measurements promise is noise: without a threshold, re-planning on
// clean measurements changes the plan two times in three for no gain at all. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::plan {

struct MoveQuestion {
  double current_step_seconds = 0;  // of the plan that runs, as the model says
  double best_step_seconds = 0;     // of the best plan, by the same model
  double model_error = 0.04;        // part of a step that the model may be wrong by; its error on past runs
  int64_t samples = 0;              // of the least measured stage, after warm-up
  int64_t samples_min = 100;
  int64_t steps_left = 0;
  double move_seconds = 0;  // restart and reshard, as measured
  int runs_that_agree = 0;  // runs in a row whose measurements, this one included, found a gain
  int runs_min = 2;
};

struct MoveAnswer {
  bool move = false;
  double predicted_gain = 0;  // part of a step, before the model's error
  std::string because;
};

// Moves when (gain - model error) x steps left exceeds what the move costs, and enough samples and runs say so.
MoveAnswer should_move(const MoveQuestion& question);

// After the move, over medians of both: false, undo it, when less than half of the predicted gain came.
struct MoveOutcome {
  double before_step_seconds = 0;
  double after_step_seconds = 0;
  double predicted_gain = 0;
};
MoveAnswer should_keep(const MoveOutcome& outcome);

}  // namespace penstock::plan
