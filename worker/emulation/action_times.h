// How long each action of a rank's program takes on an emulated device.
#pragma once

#include <map>

#include "base/clock.h"
#include "base/ids.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"

namespace penstock::worker {

class ActionTimes {
 public:
  // `costs` covers every stage of the program, as parse_job_spec sees to.
  ActionTimes(const plan::RankProgram& program, plan::EmulatedCosts costs);

  // A half of an overlapped pair takes its share of the pair: both halves end with it, as plan/simulation has it.
  // `microbatch` is that of the step.
  Duration of(StageIndex stage, plan::ActionKind kind, MicrobatchIndex microbatch) const;

 private:
  Duration alone(const plan::Work& work) const;
  void share_out(const plan::Work& first, const plan::Work& second);

  plan::EmulatedCosts costs_;
  int microbatches_;
  std::map<plan::Work, Duration> in_pairs_;  // where a pair has a cost of its own
};

}  // namespace penstock::worker
