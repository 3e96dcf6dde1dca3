// Plans of random small jobs against all of their splits, played one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

#include "plan/planning/planner.h"
#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

// Without speeds and budgets: what a step takes with these boundaries.
int64_t played_ns(const PlanningRequest& request, const ComputeProgram& program,
                  const std::vector<int>& boundaries) {
  SimulationCosts costs;
  costs.latency = request.latency_ns;
  if (!request.update_ns.empty()) costs.updates.assign(static_cast<size_t>(request.ranks), 0);
  for (size_t stage = 0; stage + 1 < boundaries.size(); ++stage) {
    int64_t forward = 0, backward = 0;
    for (auto l = static_cast<size_t>(boundaries[stage]); l < static_cast<size_t>(boundaries[stage + 1]); ++l) {
      forward += request.forward_ns[l];
      backward += request.layers[l].keep.time_ns - request.forward_ns[l];
      if (!request.update_ns.empty())
        costs.updates[static_cast<size_t>(program.placement[stage][0].value)] += request.update_ns[l];
    }
    costs.stages.push_back({forward, backward - backward / 2, backward / 2, backward});
  }
  return simulate(program, costs)->makespan;
}

void each_split(int layers, int stages, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> boundaries = {0};
  const std::function<void()> extend = [&] {
    const int left = stages - static_cast<int>(boundaries.size());
    if (left == 0) {
      boundaries.push_back(layers);
      visit(boundaries);
      boundaries.pop_back();
      return;
    }
    for (int next = boundaries.back() + 1; next <= layers - left; ++next) {
      boundaries.push_back(next);
      extend();
      boundaries.pop_back();
    }
  };
  extend();
}

class RandomJob {
 public:
  explicit RandomJob(uint32_t seed) : engine_(seed) {}

  PlanningRequest next() {
    PlanningRequest request;
    request.ranks = below(2, 4);
    request.microbatches = below(2, 12);
    const int blocks = below(8, 14);
    const bool is_wild = below(0, 2) == 0;
    const int block = below(1'000, 4'000);
    add(request, below(10, 2'000), below(10, 4'000));
    for (int i = 0; i < blocks; ++i) {
      if (is_wild)
        add(request, below(500, 4'000), below(1'000, 8'000));
      else
        add(request, block, 2 * block);
    }
    add(request, below(500, 3 * block), below(500, 6 * block));
    if (below(0, 2) == 0) request.latency_ns = below(1, 500);
    if (below(0, 2) == 0) {
      for (size_t i = 0; i < request.layers.size(); ++i) request.update_ns.push_back(below(1'000, 9'000));
    }
    return request;
  }

 private:
  int below(int least, int most) { return std::uniform_int_distribution<int>(least, most)(engine_); }
  void add(PlanningRequest& request, int64_t forward, int64_t backward) {
    LayerCost layer;
    layer.keep.time_ns = forward + backward;
    request.layers.push_back(layer);
    request.forward_ns.push_back(forward);
  }

  std::mt19937 engine_;
};

TEST(RandomPlanner, experiment) {
  const int cases = getenv("CASES") ? atoi(getenv("CASES")) : 100;
  const uint32_t seed = getenv("SEED") ? atoi(getenv("SEED")) : 1;
  RandomJob random(seed);
  struct Sum {
    int count = 0, worse = 0;
    double worst = 0, sum = 0;
  };
  std::map<std::string, Sum> sums;
  for (int i = 0; i < cases; ++i) {
    PlanningRequest request = random.next();
    for (const ScheduleChoice& choice : schedules_to_plan(false)) {
      const int layers = static_cast<int>(request.layers.size()), stages = request.ranks * choice.stages_per_rank;
      if (stages > layers) continue;
      const auto program =
          generate({.name = choice.schedule, .ranks = request.ranks, .microbatches = request.microbatches, .stages_per_rank = choice.stages_per_rank});
      if (!program.ok()) continue;
      request.asked = choice;
      request.among = {choice};
      const auto answer = plan_training(request);
      ASSERT_TRUE(answer.ok()) << answer.status();
      ASSERT_EQ(answer->plans.size(), 1u);
      const PlannedStep& best = answer->plans[0];
      ASSERT_EQ(best.step_ns, played_ns(request, *program, best.partition.boundaries));
      for (const Baseline& baseline : answer->baselines) {
        if (baseline.step) {
          ASSERT_LE(best.step_ns, baseline.step->step_ns);
        }
      }
      int64_t fastest = INT64_MAX;
      std::vector<int> fastest_split;
      each_split(layers, stages, [&](const std::vector<int>& boundaries) {
        const int64_t ns = played_ns(request, *program, boundaries);
        if (ns < fastest) fastest = ns, fastest_split = boundaries;
      });
      ASSERT_GE(best.step_ns, fastest);
      Sum& sum = sums[choice.schedule + std::to_string(choice.stages_per_rank)];
      const double gap = double(best.step_ns) / double(fastest) - 1;
      ++sum.count;
      sum.worse += gap > 0;
      sum.sum += gap;
      if (gap > sum.worst) {
        sum.worst = gap;
        if (gap > 0.02) std::cout << choice.schedule << " " << gap << " case " << i << " P " << request.ranks << " m " << request.microbatches << " " << testing::PrintToString(fastest_split) << " got " << testing::PrintToString(best.partition.boundaries) << "\n";
      }
    }
  }
  Sum all;
  for (const auto& [name, sum] : sums) {
    fmt::print("{:20} {:4} cases, {:3} worse, worst {:.2f} %, mean {:.3f} %\n", name, sum.count, sum.worse, 100 * sum.worst, 100 * sum.sum / sum.count);
    all.count += sum.count, all.worse += sum.worse, all.worst = std::max(all.worst, sum.worst), all.sum += sum.sum;
  }
  fmt::print("{:20} {:4} cases, {:3} worse, worst {:.2f} %, mean {:.3f} %\n", "all", all.count, all.worse, 100 * all.worst, 100 * all.sum / all.count);
}

}  // namespace
}  // namespace penstock::plan
