// What one rank measures during an optimizer step: how long each action of each stage took, how long it
// waited for peers, wall time and CPU time.
//
// Limits: room for every action of a step is made at construction; recording allocates nothing.
// Thread: the interpreter's.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "plan/schedule/action.h"
#include "proto/codec/messages.h"

namespace penstock::worker {

// The median of values in any order, which it reorders; the mean of the middle two where their count is even;
// 0 of none.
double median(std::span<double> values);

class StepRecorder {
 public:
  // `actions_per_kind`: most actions of one kind that a stage runs in a step; more than that are a mistake of
  // ours.
  StepRecorder(std::span<const StageIndex> stages, int actions_per_kind);

  // `cpu`: CPU time that the compute threads have used so far.
  void begin(TimePoint now, Duration cpu);
  void add_action(StageIndex stage, plan::ActionKind kind, Duration took);
  // What was computed so far is undone and computed again: its actions are not told, its time is in the step's.
  void forget_actions();
  void add_wait(Duration waited) { waited_ += waited; }
  // The optimizer's own work: not what it waited for.
  void add_optimizer(Duration took) { optimizer_ += took; }

  // Writes wall, CPU, wait and optimizer seconds and the medians of every stage into `report`, and begins the next step.
  void end(TimePoint now, Duration cpu, StepReport& report);

 private:
  static constexpr int kKinds = 4;
  struct StageSamples {
    StageIndex stage;
    std::array<std::vector<double>, kKinds> seconds;  // by ActionKind
  };
  StageSamples& samples_of(StageIndex stage);

  std::vector<StageSamples> stages_;
  size_t actions_per_kind_;
  TimePoint began_;
  Duration cpu_at_begin_{};
  Duration waited_{};
  Duration optimizer_{};
};

}  // namespace penstock::worker
