// Which weights a piece of work sees. Version v is what v optimizer steps have made.
#pragma once

#include <algorithm>

#include "plan/schedule/program.h"

namespace penstock::plan::internal {

// Synchronous and DoubleBuffered fix the version by the update that the microbatch belongs to.
inline int version_by_update(WeightVersionRule rule, int update) {
  return rule == WeightVersionRule::DoubleBuffered ? std::max(update - 1, 0) : update;
}

// Whether a rank that stands after `steps` optimizer steps holds the version that the rule asks for.
// Synchronous keeps the newest version only, DoubleBuffered also the one before it; Stashed keeps what is in
// use, so that it never fails.
inline bool weights_exist(WeightVersionRule rule, int update, int steps) {
  const int version = version_by_update(rule, update);
  switch (rule) {
    case WeightVersionRule::Synchronous:
      return version == steps;
    case WeightVersionRule::DoubleBuffered:
      return version == steps || version == steps - 1;
    case WeightVersionRule::Stashed:
      return true;
  }
  return false;
}

}  // namespace penstock::plan::internal
