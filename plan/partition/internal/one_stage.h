// One stage a rank: for every rank and every end of its stage, the best beginning (dynamic programming). Only ends are
// looked at from which the ranks behind can still hold the rest within the limit, so that the work is
// ranks x ends in that window x layers of a stage.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "plan/partition/internal/cost_model.h"

namespace penstock::plan {

template <typename Merit>
struct Found {
  Merit merit;
  std::vector<int> boundaries;
};

template <typename Merit>
class OneStageSearch {
 public:
  explicit OneStageSearch(CostModel& model)
      : model_(model),
        ranks_(model.request().ranks),
        layers_(static_cast<int>(model.request().layers.size())),
        least_(model.request().allow_empty_stages ? 0 : 1),
        begins_(static_cast<size_t>(ranks_), std::vector<int>(static_cast<size_t>(layers_) + 1, -1)) {}

  // The best split with no rank above `limit`; nothing, too, where the model stops the search.
  std::optional<Found<Merit>> best_within(int64_t limit) {
    Row before(layers_), after(layers_);
    before.put(0, Merit{});
    for (int rank = 0; rank < ranks_; ++rank) {
      fill(rank, before, after, limit);
      if (after.is_empty() || model_.is_stopped()) return std::nullopt;
      std::swap(before, after);
      after.clear();
    }
    return Found<Merit>{*before.merits[static_cast<size_t>(layers_)], boundaries()};
  }

 private:
  // The ends of one rank's stage that can be reached, from `first` to `last`.
  struct Row {
    explicit Row(int layers) : merits(static_cast<size_t>(layers) + 1), first(layers + 1), last(-1) {}

    bool is_empty() const { return last < first; }
    void put(int end, const Merit& merit) {
      first = std::min(first, end);
      last = end;
      merits[static_cast<size_t>(end)] = merit;
    }
    void clear() {
      for (int end = first; end <= last; ++end) merits[static_cast<size_t>(end)].reset();
      first = static_cast<int>(merits.size());
      last = -1;
    }

    std::vector<std::optional<Merit>> merits;
    int first;
    int last;
  };

  void fill(int rank, const Row& before, Row& after, int64_t limit) {
    const int behind = ranks_ - 1 - rank;
    const int most = layers_ - least_ * behind;
    int end = behind == 0 ? layers_ : before.first + least_;
    while (end < most && !model_.can_hold(rank + 1, model_.floor_sum(end, layers_), limit)) ++end;
    for (; end <= most && !model_.is_stopped(); ++end) {
      if (const std::optional<Merit> best = best_at(rank, end, before, limit)) {
        after.put(end, *best);
      } else if (end - least_ > before.last) {
        return;  // from no beginning on; a longer stage fits even less
      }
    }
  }

  std::optional<Merit> best_at(int rank, int end, const Row& before, int64_t limit) {
    std::optional<Merit> best;
    for (int begin = end - least_; begin >= before.first; --begin) {
      const std::array<Run, 1> run = {Run{rank, begin, end}};
      const std::optional<RankCost> cost = model_.rank_cost(rank, run);
      if (!cost || cost->cost > limit || (best && best->cannot_gain(*cost)))
        break;  // and a longer run costs more
      const std::optional<Merit>& start = before.merits[static_cast<size_t>(begin)];
      if (!start) continue;
      const Merit merit = start->with(*cost, model_.moved(rank, run[0]));
      if (best && !(merit < *best)) continue;
      best = merit;
      begins_[static_cast<size_t>(rank)][static_cast<size_t>(end)] = begin;
    }
    return best;
  }

  std::vector<int> boundaries() const {
    std::vector<int> ends = {layers_};
    for (int rank = ranks_ - 1; rank >= 0; --rank) {
      ends.push_back(begins_[static_cast<size_t>(rank)][static_cast<size_t>(ends.back())]);
    }
    std::reverse(ends.begin(), ends.end());
    return ends;
  }

  CostModel& model_;
  int ranks_;
  int layers_;
  int least_;
  std::vector<std::vector<int>> begins_;  // [rank][end]
};

}  // namespace penstock::plan
