// The split with the fastest step that is found from given ones: iterated local search. A climb hands one layer at a time to
// another stage while that pays; then the best split is shaken, and climbed from again, a few times. Of splits with equal
// steps the first one that was met stays.
//
// Most splits beside a good one need no play: every play leaves the chain of actions that set its pace, which is there in
// every split, and where a known chain alone takes as long as the best step, no play can be faster.
//
// The same answer everywhere and every time, unless the request's keep_going ends it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/partition/split_costs.h"
#include "plan/planning/internal/playable.h"
#include "plan/planning/internal/split_player.h"

namespace penstock::plan {

class SplitSearch {
 public:
  // All must outlive it.
  SplitSearch(const PlanningRequest& request, const Playable& playable, SplitPlayer& player);

  // No start takes less time than the answer: each is played, however little time there is. Nothing: none can be played within
  // the budget.
  std::optional<std::vector<int>> best_from(const std::vector<std::vector<int>>& starts);

 private:
  struct Found {
    std::vector<int> boundaries;
    Ticks makespan = 0;
  };

  // Nothing where the split does not fit, or takes as long as `limit`.
  std::optional<Found> faster_than(Ticks limit, const std::vector<int>& boundaries);
  bool is_ruled_out(Ticks limit);
  void keep_chain();
  void climb(Found& best);
  bool improve(Found& best);
  void shake(Found& best);
  bool is_spent();

  const PlanningRequest& request_;
  SplitPlayer& player_;
  SplitCosts costs_;
  std::vector<Replay::Chain> chains_;  // those that were of use last stand first
  int64_t split_work_ = 0;             // of a split that is not played, in actions that are
  int64_t work_ = 0;
  int64_t asked_at_ = 0;  // how much work there was when keep_going was asked
  bool is_stopped_ = false;
};

}  // namespace penstock::plan
