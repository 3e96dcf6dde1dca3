// Two stages a rank. The model is cut in the middle, at every layer in turn, and both halves are walked at once: rank
// after rank takes the next run of each. In the V placement the second half is walked from its end, so that the same
// walk serves both placements.
//
// The state is how far each half has come. Only states from which the ranks behind can still hold the rest within the
// limit are visited: with a limit near the best they form a narrow band.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "plan/partition/internal/cost_model.h"
#include "plan/partition/internal/one_stage.h"

namespace penstock::plan {

template <typename Merit>
class TwoStageSearch {
 public:
  explicit TwoStageSearch(CostModel& model)
      : model_(model),
        ranks_(model.request().ranks),
        layers_(static_cast<int>(model.request().layers.size())),
        least_(model.request().allow_empty_stages ? 0 : 1),
        reached_(static_cast<size_t>(ranks_) + 1) {}

  // The best split with no rank above `limit`, or the best so far where the model stops the search.
  std::optional<Found<Merit>> best_within(int64_t limit) {
    std::optional<Found<Merit>> best;
    for (const int middle : middles()) {
      if (model_.is_stopped()) break;
      std::optional<Found<Merit>> found = best_around(middle, limit);
      if (!found || (best && !(found->merit < best->merit))) continue;
      best = std::move(found);
      if constexpr (std::is_same_v<Merit, Slowest>) limit = best->merit.cost - 1;
    }
    return best;
  }

 private:
  struct State {
    int front = 0;  // layers taken of the first half
    int back = 0;   // and of the second, from its own start
  };
  // What can be reached after a rank.
  struct Layer {
    std::vector<State> states;
    std::vector<std::optional<Merit>> merits;  // [front x width + back]; may be longer
    std::vector<State> parents;
    size_t width = 0;
  };

  // From the evenest cut outwards: the first ones then bring the limit down.
  std::vector<int> middles() const {
    std::vector<int> cuts;
    for (int cut = least_ * ranks_; cut <= layers_ - least_ * ranks_; ++cut) cuts.push_back(cut);
    const auto unevenness = [&](int cut) {
      return std::abs(model_.floor_sum(0, cut) - model_.floor_sum(cut, layers_));
    };
    std::stable_sort(cuts.begin(), cuts.end(), [&](int a, int b) { return unevenness(a) < unevenness(b); });
    return cuts;
  }

  std::optional<Found<Merit>> best_around(int middle, int64_t limit) {
    middle_ = middle;
    width_ = static_cast<size_t>(layers_ - middle) + 1;
    for (Layer& layer : reached_) clear(layer);
    put(reached_[0], {0, 0}, Merit{}, {0, 0});
    for (int rank = 0; rank < ranks_; ++rank) {
      for (const State& state : reached_[static_cast<size_t>(rank)].states) {
        if (model_.is_stopped()) return std::nullopt;
        extend(rank, state, limit);
      }
      if (reached_[static_cast<size_t>(rank) + 1].states.empty()) return std::nullopt;
    }
    const State whole = {middle_, layers_ - middle_};
    return Found<Merit>{*reached_.back().merits[place(whole)], boundaries(whole)};
  }

  void extend(int rank, const State& from, int64_t limit) {
    const int behind = ranks_ - 1 - rank;
    const int most_front = middle_ - least_ * behind;
    for (int front = behind == 0 ? most_front : from.front + least_; front <= most_front; ++front) {
      if (!extend_back(rank, from, front, limit)) return;
    }
  }

  // False when not even the shortest run of the second half has room beside this one of the first.
  bool extend_back(int rank, const State& from, int front, int64_t limit) {
    const int behind = ranks_ - 1 - rank;
    const int most_back = layers_ - middle_ - least_ * behind;
    const int first = behind == 0 ? most_back : from.back + least_;
    for (int back = first; back <= most_back; ++back) {
      const int64_t left = model_.floor_sum(front, middle_) + floor_behind(back);
      if (behind > 0 && !model_.can_hold(rank + 1, left, limit)) continue;
      const std::array<Run, 2> runs = {Run{rank, from.front, front}, back_run(rank, from.back, back)};
      const std::optional<RankCost> cost = model_.rank_cost(rank, runs);
      if (!cost || cost->cost > limit) return back > first;
      const int64_t moved = model_.moved(rank, runs[0]) + model_.moved(rank, runs[1]);
      const Merit merit = reached_[static_cast<size_t>(rank)].merits[place(from)]->with(*cost, moved);
      put(reached_[static_cast<size_t>(rank) + 1], {front, back}, merit, from);
    }
    return true;
  }

  bool is_v() const { return model_.request().placement == StagePlacement::V; }

  Run back_run(int rank, int from, int to) const {
    if (is_v()) return {2 * ranks_ - 1 - rank, layers_ - to, layers_ - from};
    return {ranks_ + rank, middle_ + from, middle_ + to};
  }
  int64_t floor_behind(int back) const {
    return is_v() ? model_.floor_sum(middle_, layers_ - back) : model_.floor_sum(middle_ + back, layers_);
  }

  size_t place(const State& state) const {
    return static_cast<size_t>(state.front) * width_ + static_cast<size_t>(state.back);
  }

  // Its places are those of the middle that it was filled for.
  void clear(Layer& layer) const {
    for (const State& state : layer.states)
      layer.merits[static_cast<size_t>(state.front) * layer.width + static_cast<size_t>(state.back)].reset();
    layer.states.clear();
  }

  void put(Layer& layer, const State& state, const Merit& merit, const State& parent) {
    layer.width = width_;
    if (const size_t places = (static_cast<size_t>(middle_) + 1) * width_; layer.merits.size() < places) {
      layer.merits.resize(places);
      layer.parents.resize(places);
    }
    std::optional<Merit>& there = layer.merits[place(state)];
    if (!there) layer.states.push_back(state);
    if (there && !(merit < *there)) return;
    there = merit;
    layer.parents[place(state)] = parent;
  }

  std::vector<int> boundaries(State state) const {
    std::vector<int> fronts(static_cast<size_t>(ranks_) + 1), backs(static_cast<size_t>(ranks_) + 1);
    for (size_t rank = fronts.size(); rank-- > 0;) {
      fronts[rank] = state.front;
      backs[rank] = state.back;
      state = reached_[rank].parents[place(state)];
    }
    std::vector<int> all = fronts;
    for (size_t i = 1; i < backs.size(); ++i) {
      all.push_back(is_v() ? layers_ - backs[backs.size() - 1 - i] : middle_ + backs[i]);
    }
    return all;
  }

  CostModel& model_;
  int ranks_;
  int layers_;
  int least_;
  int middle_ = 0;
  size_t width_ = 0;
  std::vector<Layer> reached_;  // after so many ranks
};

}  // namespace penstock::plan
