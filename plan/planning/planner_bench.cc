// How long a whole plan takes: 61 blocks on 16 ranks, 64 microbatches, every schedule that needs no search. To stay under
// a second.
#include <benchmark/benchmark.h>

#include "plan/planning/planner.h"

namespace penstock::plan {
namespace {

void plan_of_61_blocks(benchmark::State& state) {
  PlanningRequest request;
  for (int l = 0; l < 63; ++l) {
    LayerCost layer;
    layer.keep = {l == 0 ? 2'000'000 : l == 62 ? 30'000'000 : 7'900'000, 200'000'000, 1'800'000'000};
    request.layers.push_back(layer);
    request.forward_ns.push_back(layer.keep.time_ns / 3);
  }
  request.ranks = 16;
  request.microbatches = 64;
  request.asked = {"1f1b", 1};
  request.among = schedules_to_plan(state.range(0) != 0);
  for (auto _ : state) benchmark::DoNotOptimize(plan_training(request));
}
BENCHMARK(plan_of_61_blocks)
    ->ArgName("searched")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace
}  // namespace penstock::plan
