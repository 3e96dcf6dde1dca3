// Describes ranks that wait for each other in a circle.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "plan/verification/verify.h"

namespace penstock::plan::internal {

// Where a rank stopped and what it waits for there.
struct Standstill {
  int position = -1;
  std::string action;     // at that position
  std::string waits_for;  // "1B0 of rank 1"
};

// `waits_for[rank]` is the rank that it waits for, -1 when it has ended. `describe` is called for ranks of
// the circle only. When nothing is a circle, some rank waits for one that has ended: then that is described.
Violation describe_circle(const std::vector<int>& waits_for, const std::string& sends,
                          const std::function<Standstill(int rank)>& describe);

}  // namespace penstock::plan::internal
