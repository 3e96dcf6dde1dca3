// Collects every rank's report of a step; a step is committed when all are in, in order of steps.
//
// Ranks may run ahead of each other by a bounded number of steps: workers never wait for a commit.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "proto/codec/messages.h"

namespace penstock::coordinator {

class StepWindow {
 public:
  StepWindow() = default;
  StepWindow(int ranks, int64_t first_step) : ranks_(ranks), committed_(first_step) {}

  enum class Added { Taken, Duplicate, OutOfWindow };
  // The report's rank must be in range. At most `steps_ahead` steps wait at once.
  Added add(StepReport report, int64_t steps_ahead);

  // The reports of the next step, by rank, when all are in; it is committed then.
  std::optional<std::vector<StepReport>> take_committed();

  int64_t committed() const { return committed_; }
  size_t waiting() const { return steps_.size(); }
  // Steps that the rank has reported contiguously from the first: what it is working on.
  int64_t next_of(RankIndex rank) const;

 private:
  struct Slot {
    std::vector<std::optional<StepReport>> reports;  // [rank]; empty before the first
    int count = 0;
  };

  int ranks_ = 0;
  int64_t committed_ = 0;
  std::deque<Slot> steps_;  // steps_[i] is step committed_ + i
};

}  // namespace penstock::coordinator
