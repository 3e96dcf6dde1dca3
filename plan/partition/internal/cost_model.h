// What a rank costs that holds given runs of layers, as the searches for a split ask it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/partition/internal/front.h"
#include "plan/partition/partition.h"

namespace penstock::plan {

// The layers from begin up to end on a stage of the rank.
struct Run {
  int stage = 0;
  int begin = 0;
  int end = 0;
};

struct RankCost {
  int64_t cost = 0;  // what the search minimises the largest of
  int64_t time_ns = 0;
  int64_t bytes = 0;
};

enum class Objective : uint8_t {
  Time,   // cost is the time within the budget
  Bytes,  // cost is the fewest bytes that the runs can do with; what the rank's budget is short of the largest counts as held
};

class CostModel {
 public:
  // `request` is checked, and outlives the model.
  CostModel(const PartitionRequest& request, Objective objective);

  // Nothing when the runs do not fit into the budget. Grows when a run grows, in every part.
  std::optional<RankCost> rank_cost(int rank, std::span<const Run> runs);

  // No choice and no stage takes less for these layers, in the units of the objective, at speed 1.
  int64_t floor_sum(int begin, int end) const { return floors_[at(end)] - floors_[at(begin)]; }
  // Whether layers of that floor could lie on the ranks from `rank` on with no more than `limit` on each.
  bool can_hold(int rank, int64_t floor, int64_t limit) const;

  int64_t moved(int rank, const Run& run) const;  // from the current placement
  int64_t ideal_cost() const;                     // no split is better: all layers, spread evenly
  int64_t least_cost() const;                     // of the slowest rank: that, or the largest layer alone
  int64_t cost_max() const { return cost_max_; }  // no rank of any split costs more

  const PartitionRequest& request() const { return request_; }
  bool thinned() const { return fronts_.thinned(); }

  // Whether a search has to end: it has done what one may (about a second), or keep_going says no.
  bool is_stopped();

 private:
  using Wide = __int128;

  // In evaluations of ranks that do not recompute; points of fronts are a few of them.
  int64_t work() const { return evaluations_ + points_ + fronts_.points_made(); }
  static size_t at(int index) { return static_cast<size_t>(index); }
  int64_t speed(int rank) const;
  void set_budgets();
  int64_t layers_cost_max() const;
  int64_t on_rank(int rank, int64_t time_ns) const;
  std::optional<TimeAndBytes> plain(int rank, std::span<const Run> runs) const;
  std::optional<TimeAndBytes> chosen(int rank, std::span<const Run> runs);

  const PartitionRequest& request_;
  Objective objective_;
  bool recomputes_ = false;
  std::vector<int64_t> budgets_;     // [rank]; where bytes are the objective any fit
  std::vector<int64_t> shortfalls_;  // [rank], of the budget; 0 where time is the objective
  std::vector<int64_t> times_, activations_, statics_, floors_;  // sums of the first l layers
  std::vector<std::vector<int64_t>> moved_;  // [rank], likewise; empty without a placement
  std::vector<int64_t> speeds_from_;         // sum of the speeds from a rank on
  std::vector<Wide> shortfalls_from_;        // likewise
  int64_t largest_floor_ = 0;
  int64_t cost_max_ = 0;
  FrontTable fronts_;
  int64_t evaluations_ = 0, points_ = 0;
  int64_t asked_at_ = 0;  // how much work there was when keep_going was asked
  bool is_stopped_ = false;
};

// In whole nanoseconds, halves up.
int64_t time_at_speed(int64_t time_ns, int64_t speed);

}  // namespace penstock::plan
