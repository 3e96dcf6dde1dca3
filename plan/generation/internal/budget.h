// How many more candidates may be timed, asked before each.
#pragma once

#include "plan/generation/generate.h"

namespace penstock::plan::internal {

class Budget {
 public:
  explicit Budget(const SearchLimits& limits) : limits_(limits) {}  // which must outlive this

  // Takes one evaluation. False when there are no more; then always.
  bool take() {
    if (!goes_on()) return false;
    ++used_;
    return true;
  }

  // Whether there are more; asked between the passes over one candidate too, which may be large.
  bool goes_on() {
    if (!is_spent_)
      is_spent_ = used_ >= limits_.evaluations_max || (limits_.keep_going && !limits_.keep_going());
    return !is_spent_;
  }

  int64_t used() const { return used_; }

 private:
  const SearchLimits& limits_;
  int64_t used_ = 0;
  bool is_spent_ = false;
};

}  // namespace penstock::plan::internal
