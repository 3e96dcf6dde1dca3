// Against two other hands: enumeration of every split and every choice, and a parametric search (bisection over the time,
// with the set of reachable ends). A failure prints its seed.
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "plan/partition/partition.h"

namespace penstock::plan {
namespace {

constexpr int64_t kNone = -1;

int64_t on_speed(const PartitionRequest& request, int rank, int64_t time) {
  if (request.rank_speed.empty()) return time;
  const int64_t speed = request.rank_speed[static_cast<size_t>(rank)];
  return (time * kSpeedUnit + speed / 2) / speed;
}

int64_t held_at_most(const PartitionRequest& request, int rank) {
  const std::vector<int64_t>& budgets = request.budget_bytes;
  if (budgets.empty()) return int64_t{1} << 60;
  return budgets.size() == 1 ? budgets.front() : budgets[static_cast<size_t>(rank)];
}

// The fastest choice for one rank within the budget; kNone when none fits. Tries all of them.
int64_t fastest_by_trying(const PartitionRequest& request, const std::vector<int>& boundaries, int rank) {
  std::vector<std::pair<int64_t, int64_t>> choices = {{0, 0}};  // time, bytes
  for (size_t stage = 0; stage + 1 < boundaries.size(); ++stage) {
    if (rank_of_stage(request.placement, request.ranks, static_cast<int>(stage)) != rank) continue;
    for (int l = boundaries[stage]; l < boundaries[stage + 1]; ++l) {
      const LayerCost& layer = request.layers[static_cast<size_t>(l)];
      std::vector<std::pair<int64_t, int64_t>> more;
      const auto add = [&](const LayerOption& option) {
        const int64_t bytes = option.static_bytes + option.activation_bytes * request.in_flight[stage];
        for (const auto& [time, held] : choices) more.emplace_back(time + option.time_ns, held + bytes);
      };
      add(layer.keep);
      if (layer.recompute) add(*layer.recompute);
      choices = std::move(more);
    }
  }
  int64_t best = kNone;
  for (const auto& [time, bytes] : choices) {
    if (bytes > held_at_most(request, rank)) continue;
    if (best == kNone || time < best) best = time;
  }
  return best == kNone ? kNone : on_speed(request, rank, best);
}

int64_t slowest_of(const PartitionRequest& request, const std::vector<int>& boundaries) {
  int64_t slowest = 0;
  for (int rank = 0; rank < request.ranks; ++rank) {
    const int64_t time = fastest_by_trying(request, boundaries, rank);
    if (time == kNone) return kNone;
    slowest = std::max(slowest, time);
  }
  return slowest;
}

// Calls `visit` with the boundaries of every split.
void each_split(const PartitionRequest& request, const std::function<void(const std::vector<int>&)>& visit) {
  const size_t stages = static_cast<size_t>(request.ranks) * static_cast<size_t>(request.stages_per_rank);
  const int layers = static_cast<int>(request.layers.size());
  const int least = request.allow_empty_stages ? 0 : 1;
  std::vector<int> boundaries = {0};
  const std::function<void()> extend = [&] {
    const bool is_last = boundaries.size() == stages;
    for (int end = is_last ? std::max(layers, boundaries.back() + least) : boundaries.back() + least;
         end <= layers; ++end) {
      boundaries.push_back(end);
      is_last ? visit(boundaries) : extend();
      boundaries.pop_back();
    }
  };
  extend();
}

int64_t best_by_enumeration(const PartitionRequest& request) {
  int64_t best = kNone;
  each_split(request, [&](const std::vector<int>& boundaries) {
    const int64_t slowest = slowest_of(request, boundaries);
    if (slowest != kNone && (best == kNone || slowest < best)) best = slowest;
  });
  return best;
}

// One stage a rank, nothing recomputed.
bool is_reachable_within(const PartitionRequest& request, int64_t limit) {
  const size_t layers = request.layers.size();
  std::vector<bool> ends(layers + 1);
  ends[0] = true;
  for (int rank = 0; rank < request.ranks; ++rank) {
    std::vector<bool> next(layers + 1);
    for (size_t begin = 0; begin <= layers; ++begin) {
      if (!ends[begin]) continue;
      int64_t time = 0, bytes = 0;
      for (size_t end = begin + 1; end <= layers; ++end) {
        const LayerOption& layer = request.layers[end - 1].keep;
        time += layer.time_ns;
        bytes += layer.static_bytes + layer.activation_bytes * request.in_flight[static_cast<size_t>(rank)];
        if (on_speed(request, rank, time) > limit || bytes > held_at_most(request, rank)) break;
        next[end] = true;
      }
    }
    ends = next;
  }
  return ends[layers];
}

int64_t best_by_bisection(const PartitionRequest& request) {
  int64_t low = 0, high = int64_t{1} << 40;
  if (!is_reachable_within(request, high)) return kNone;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (is_reachable_within(request, middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t operator()(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(engine_() % static_cast<uint64_t>(most - least + 1));
  }

 private:
  std::mt19937_64 engine_;
};

// Mostly equal blocks, as in models, so that ties abound; sometimes wild ones, zeros among them.
PartitionRequest random_request(Random& random, int layers, int ranks, int stages_per_rank) {
  PartitionRequest request;
  request.ranks = ranks;
  request.stages_per_rank = stages_per_rank;
  const bool wild = random(0, 1) == 1;
  for (int l = 0; l < layers; ++l) {
    LayerCost layer;
    layer.keep = {wild ? random(0, 50) : 20, wild ? random(0, 9) : 5, wild ? random(0, 30) : 10};
    request.layers.push_back(layer);
  }
  request.layers.back().keep.time_ns = random(0, 100);
  for (int stage = 0; stage < ranks * stages_per_rank; ++stage) {
    request.in_flight.push_back(static_cast<int>(random(1, ranks + 1)));
  }
  if (random(0, 2) == 0) {
    for (int rank = 0; rank < ranks; ++rank) request.rank_speed.push_back(random(5, 15) * 100'000);
  }
  request.allow_empty_stages = random(0, 3) == 0;
  return request;
}

void let_some_recompute(Random& random, PartitionRequest& request) {
  for (LayerCost& layer : request.layers) {
    if (random(0, 3) == 0) continue;
    layer.recompute = LayerOption{layer.keep.time_ns + random(0, 15), random(0, layer.keep.activation_bytes),
                                  layer.keep.static_bytes + random(0, 3)};
  }
}

// Mostly one that bites, of all ranks or of each.
void set_budget(Random& random, PartitionRequest& request) {
  if (random(0, 4) == 0) return;
  const int64_t least = smallest_peak_partition(request)->peak_bytes;
  const int64_t budgets = random(0, 1) == 0 ? 1 : request.ranks;
  for (int64_t i = 0; i < budgets; ++i) {
    const int64_t apart = budgets == 1 ? 2 : least / 2 + 2;
    request.budget_bytes.push_back(std::max<int64_t>(0, least + random(-apart, least / 2 + 2)));
  }
}

PartitionRequest with_more_bytes(PartitionRequest request, int64_t bytes) {
  for (int64_t& budget : request.budget_bytes) budget += bytes;
  return request;
}

using Best = int64_t(const PartitionRequest&);

void expect_best(const PartitionRequest& request, Best* best_by_other_hand, uint32_t seed) {
  const int64_t best = best_by_other_hand(request);
  const StatusOr<PartitionAnswer> answer = partition(request);
  ASSERT_TRUE(answer.ok()) << answer.status() << " seed " << seed;
  ASSERT_EQ(answer->feasible, best != kNone) << "seed " << seed;
  if (best == kNone) {
    const int64_t missing = *answer->missing_bytes;
    ASSERT_NE(best_by_other_hand(with_more_bytes(request, missing)), kNone) << "seed " << seed;
    ASSERT_EQ(best_by_other_hand(with_more_bytes(request, missing - 1)), kNone) << "seed " << seed;
    ASSERT_EQ(answer->smallest_budget.has_value(), request.budget_bytes.size() == 1) << "seed " << seed;
    if (answer->smallest_budget) {
      ASSERT_EQ(*answer->smallest_budget, request.budget_bytes[0] + missing) << "seed " << seed;
    }
    return;
  }
  ASSERT_EQ(answer->plan.slowest_ns, best) << "seed " << seed;
  ASSERT_EQ(slowest_of(request, answer->plan.boundaries), best) << "seed " << seed;
  for (int rank = 0; rank < request.ranks; ++rank) {
    ASSERT_LE(answer->plan.rank_bytes[static_cast<size_t>(rank)], held_at_most(request, rank))
        << "seed " << seed;
  }
}

TEST(RandomPartitionTest, every_split_tried_gives_nothing_better) {
  for (uint32_t seed = 0; seed < 1'000; ++seed) {
    Random random(seed);
    const int stages_per_rank = static_cast<int>(random(1, 2));
    const int ranks = static_cast<int>(random(1, stages_per_rank == 1 ? 5 : 3));
    const int stages = ranks * stages_per_rank;
    PartitionRequest request = random_request(
        random, static_cast<int>(random(stages, std::max(stages + 1, 9))), ranks, stages_per_rank);
    if (stages_per_rank == 2 && random(0, 1) == 1) request.placement = StagePlacement::V;
    if (random(0, 1) == 1) let_some_recompute(random, request);
    set_budget(random, request);
    expect_best(request, best_by_enumeration, seed);
  }
}

TEST(RandomPartitionTest, bisection_over_the_time_finds_the_same) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const int ranks = static_cast<int>(random(2, 16));
    PartitionRequest request = random_request(random, static_cast<int>(random(ranks, 120)), ranks, 1);
    request.allow_empty_stages = false;
    set_budget(random, request);
    expect_best(request, best_by_bisection, seed);
  }
}

int64_t bytes_and_layers_moved(const PartitionRequest& request, const std::vector<int>& boundaries) {
  int64_t moved = 0;
  for (size_t stage = 0; stage + 1 < boundaries.size(); ++stage) {
    const int rank = rank_of_stage(request.placement, request.ranks, static_cast<int>(stage));
    for (int l = boundaries[stage]; l < boundaries[stage + 1]; ++l) {
      const auto layer = static_cast<size_t>(l);
      if (request.current_rank[layer] != rank) moved += request.layers[layer].keep.static_bytes + 1;
    }
  }
  return moved;
}

// No split of the same time moves less; of those that move as little, none has a lower peak.
void expect_ties_broken(uint32_t seed, int stages_per_rank, StagePlacement placement) {
  Random random(seed);
  const int ranks = static_cast<int>(random(2, stages_per_rank == 1 ? 4 : 3));
  const int stages = ranks * stages_per_rank;
  PartitionRequest request =
      random_request(random, static_cast<int>(random(stages, 9)), ranks, stages_per_rank);
  request.placement = placement;
  request.allow_empty_stages = false;
  int stage = 0;
  for (size_t l = 0; l < request.layers.size(); ++l) {
    request.current_rank.push_back(rank_of_stage(placement, ranks, stage));
    if (random(0, 1) == 1) stage = std::min(stage + 1, stages - 1);
  }
  const Partition best = partition(request)->plan;
  const auto merit = [&](const Partition& split) {
    return std::make_pair(bytes_and_layers_moved(request, split.boundaries), split.peak_bytes);
  };
  each_split(request, [&](const std::vector<int>& boundaries) {
    const StatusOr<Partition> other = evaluate_partition(request, boundaries);
    if (other->slowest_ns == best.slowest_ns) {
      EXPECT_GE(merit(*other), merit(best)) << "seed " << seed;
    }
  });
}

TEST(RandomPartitionTest, ties_are_broken_by_what_moves_and_then_by_the_peak) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    expect_ties_broken(seed, 1, StagePlacement::Loop);
    expect_ties_broken(seed, 2, StagePlacement::Loop);
    expect_ties_broken(seed, 2, StagePlacement::V);
  }
}

}  // namespace
}  // namespace penstock::plan
