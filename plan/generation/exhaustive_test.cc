// Searches and bounds against all programs there are, of tiny shapes with random costs and memory.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "plan/generation/testing/searched.h"

namespace penstock::plan {
namespace {

using testing::checked;
using testing::memory_of;
using testing::request_for;

using Order = std::vector<Action>;

// All orders of one rank: each stage's forwards, input and weight gradients in microbatch order and after
// each other, within the limit.
class AllOrders {
 public:
  AllOrders(std::vector<int> stages, int microbatches, const MemoryDeltas& deltas, int64_t limit)
      : stages_(std::move(stages)),
        microbatches_(microbatches),
        deltas_(deltas),
        limit_(limit),
        done_(stages_.size()) {
    extend(0);
  }
  const std::vector<Order>& orders() const { return orders_; }

 private:
  static constexpr ActionKind kKinds[] = {ActionKind::Forward, ActionKind::InputGradient,
                                          ActionKind::WeightGradient};

  void extend(int64_t held) {
    if (order_.size() == 3 * stages_.size() * microbatches_) orders_.push_back(order_);
    for (size_t chunk = 0; chunk < stages_.size(); ++chunk) {
      for (int kind = 0; kind < 3; ++kind) {
        int& done = done_[chunk][kind];
        const int64_t now = held + memory_of(kKinds[kind], deltas_);
        if (done == (kind == 0 ? microbatches_ : done_[chunk][kind - 1]) || now > limit_) continue;
        order_.push_back(single(StageIndex(stages_[chunk]), kKinds[kind], MicrobatchIndex(done++)));
        extend(now);
        order_.pop_back();
        --done;
      }
    }
  }

  std::vector<int> stages_;
  int microbatches_;
  MemoryDeltas deltas_;
  int64_t limit_;
  std::vector<std::array<int, 3>> done_;
  Order order_;
  std::vector<Order> orders_;
};

// The shortest longest span over every choice of an order for each rank.
class Exhaustive {
 public:
  Exhaustive(const GenerationRequest& request, bool v_shaped) : costs_(*request.costs) {
    const int ranks = request.schedule.ranks;
    program_.ranks = ranks;
    program_.microbatches = request.schedule.microbatches;
    program_.stages_per_rank = v_shaped ? 2 : 1;
    program_.placement = v_shaped ? v_placement(ranks) : loop_placement(ranks, 1);
    program_.actions.resize(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<int> stages{rank};
      if (v_shaped) stages.push_back(2 * ranks - 1 - rank);
      choices_.push_back(
          AllOrders(stages, request.schedule.microbatches, request.memory.deltas[0], request.memory.limits[0])
              .orders());
    }
    choose(0);
  }
  Ticks best() const { return best_; }

 private:
  void choose(int rank) {
    if (rank == program_.ranks) {
      const StatusOr<Simulation> simulation = simulate(program_, costs_);
      if (simulation.ok()) best_ = std::min(best_, simulation->max_stage_span);  // otherwise a deadlock
      return;
    }
    for (const Order& order : choices_[rank]) {
      program_.actions[rank] = order;
      choose(rank + 1);
    }
  }

  SimulationCosts costs_;
  ComputeProgram program_;
  std::vector<std::vector<Order>> choices_;
  Ticks best_ = INT64_MAX;
};

struct Shape {
  int ranks;
  int microbatches;
  int64_t limit_max;
};

void compare(const char* name, const Shape& shape, const MemoryDeltas& deltas, int rounds) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
  };
  const bool v_shaped = std::string(name) == "v-auto";
  const int64_t smallest = (v_shaped ? 2 : 1) * deltas.forward;
  for (int round = 0; round < rounds; ++round) {
    const int64_t limit = draw(smallest, shape.limit_max);
    GenerationRequest request = request_for(name, shape.ranks, shape.microbatches, {}, limit, deltas);
    for (StageCosts& stage : request.costs->stages) stage = {draw(1, 4), draw(1, 4), draw(1, 4)};
    request.costs->latency = draw(0, 2);
    request.search.evaluations_max = 5'000;
    const SearchReport report = checked(request);
    const Ticks optimum = Exhaustive(request, v_shaped).best();
    SCOPED_TRACE(
        fmt::format("{} P {} m {} limit {} round {}", name, shape.ranks, shape.microbatches, limit, round));
    EXPECT_LE(report.bound, optimum);
    EXPECT_EQ(report.max_stage_span, optimum);
  }
}

TEST(Exhaustive, zero_bubble_searches_find_the_optimum_and_bounds_stay_below) {
  for (const MemoryDeltas& deltas :
       {MemoryDeltas{1, 0, -1}, MemoryDeltas{2, -1, -1}, MemoryDeltas{1, -1, 0}}) {
    compare("zb-auto", {2, 2, 3 * deltas.forward}, deltas, 20);
    compare("zb-auto", {2, 3, 3 * deltas.forward}, deltas, 10);
    compare("zb-auto", {3, 2, 3 * deltas.forward}, deltas, 10);
  }
}

TEST(Exhaustive, v_shaped_searches_find_the_optimum_and_bounds_stay_below) {
  compare("v-auto", {1, 2, 4}, {1, 0, -1}, 10);
  compare("v-auto", {2, 1, 2}, {1, 0, -1}, 20);
  compare("v-auto", {3, 1, 2}, {1, 0, -1}, 20);
  compare("v-auto", {2, 2, 2}, {1, 0, -1}, 1);
}

}  // namespace
}  // namespace penstock::plan
