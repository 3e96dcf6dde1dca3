// How many versions of its weights a rank must hold for what its program computes.
#pragma once

#include "plan/schedule/lowered.h"

namespace penstock::plan {

// The newest version and those before it, counted: 1 is the newest alone.
struct WeightVersionsHeld {
  int by_all = 1;       // what any computation of the rank reads
  int by_forwards = 1;  // what its forwards read
  auto operator<=>(const WeightVersionsHeld&) const = default;
};

// Of a program that verification has accepted: a computation that stands behind s optimizer steps and reads version v
// needs the s - v + 1 newest. pipedream with m = 1: P - s on stage s, and 1 for forwards, which take the newest;
// pipedream-2bw: 2 and 2; synchronous programs: 1 and 1.
WeightVersionsHeld weight_versions_held(const RankProgram& program);

}  // namespace penstock::plan
