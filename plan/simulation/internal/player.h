// Gives every action of a program its time, and adds up what follows from the times.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "plan/schedule/dataflow.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan::internal {

class Player {
 public:
  // Both must outlive this. `costs` has been checked against the program.
  Player(const ComputeProgram& program, const SimulationCosts& costs);

  Status play_earliest();
  Status play_aligned();
  Simulation summarise() &&;

 private:
  // What one action waited for longest: when its producer ended, and when its tensor was there.
  struct Input {
    Ticks produced = 0;
    Ticks arrived = 0;
  };

  size_t cell(Flow flow, StageIndex source, MicrobatchIndex microbatch) const;
  bool crosses_ranks(const Passage& passage) const;
  // Nothing when its producer has not run yet.
  std::optional<Input> input_of(const Work& work) const;
  std::optional<Input> last_input_of(const Action& action) const;
  Ticks duration_of(const Work& work) const;
  Ticks duration_of(const Action& action) const;
  void run(int rank, Ticks start);
  void note_end(const Work& work, Ticks end);

  Status check_aligned() const;
  size_t warm_up_of(int rank) const;
  void align_rank(int rank);

  void add_idle_times(int rank, Ticks origin, Ticks end);
  void classify(const Work& work, int rank, size_t position);

  const ComputeProgram& program_;
  const SimulationCosts& costs_;
  std::vector<Ticks>
      ends_;  // [flow, source stage, microbatch] of what produces each boundary tensor; -1 until then
  std::deque<int> ready_;
  Simulation result_;
};

}  // namespace penstock::plan::internal
