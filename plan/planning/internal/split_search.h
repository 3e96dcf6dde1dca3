// The split of the fastest step that is found from some splits to start from: one layer at a time is handed to another stage
// while that pays. Of splits with equal steps the first one that was met stays.
//
// Most splits beside a good one need not be played: every play leaves the chain of actions that set its pace, which is there
// in every split, and where a known chain alone takes as long as the best step, no play can be faster.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/status.h"
#include "plan/partition/split_costs.h"
#include "plan/planning/internal/playable.h"
#include "plan/planning/internal/split_player.h"

namespace penstock::plan {

class SplitSearch {
 public:
  // All must outlive it.
  SplitSearch(const PlanningRequest& request, const Playable& playable, SplitPlayer& player);

  // Every start is played. The best ones are climbed from first, for as long as the allowance of work lasts and the request's
  // keep_going. Nothing: no start fits the budget.
  std::optional<std::vector<int>> best_from(std::vector<std::vector<int>> starts);

  int64_t plays() const { return plays_; }
  int64_t looked_at() const { return looked_at_; }

 private:
  struct Found {
    std::vector<int> boundaries;
    Ticks makespan = 0;
  };

  std::optional<Ticks> makespan_below(const std::vector<int>& boundaries, Ticks limit);
  bool is_ruled_out(Ticks limit);
  void keep_chain();
  void climb(Found& best);
  bool improve(Found& best);
  bool is_spent();

  const PlanningRequest& request_;
  SplitPlayer& player_;
  SplitCosts costs_;
  std::vector<Replay::Chain> chains_;  // those that ruled something out last, first
  int64_t split_work_ = 1;             // of one split that is not played
  int64_t work_ = 0;
  int64_t asked_at_ = 0;
  bool is_stopped_ = false;
  int64_t plays_ = 0, looked_at_ = 0;
};

}  // namespace penstock::plan
