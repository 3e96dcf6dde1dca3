// How long a split takes. Arguments: layers, ranks. The plain one of 512 layers on 32 ranks is to stay under 1 ms.
#include <benchmark/benchmark.h>

#include "plan/partition/partition.h"

namespace penstock::plan {
namespace {

enum class Kind { OneStage, Budget, Loop, V, Recompute };

PartitionRequest request_of(int layers, int ranks, Kind kind) {
  PartitionRequest request;
  request.ranks = ranks;
  request.stages_per_rank = kind == Kind::Loop || kind == Kind::V ? 2 : 1;
  request.placement = kind == Kind::V ? StagePlacement::V : StagePlacement::Loop;
  for (int l = 0; l < layers; ++l) {
    LayerCost layer;
    layer.keep = {7'900'000 + (l * 7919) % 100'000, 200'000'000, 1'800'000'000};
    if (kind == Kind::Recompute)
      layer.recompute = LayerOption{layer.keep.time_ns * 4 / 3, 12'000'000, 1'800'000'000};
    request.layers.push_back(layer);
  }
  request.layers.back().keep.time_ns = 30'000'000;
  for (int stage = 0; stage < ranks * request.stages_per_rank; ++stage) {
    request.in_flight.push_back(std::max(1, ranks - stage));
  }
  if (kind == Kind::Budget || kind == Kind::Recompute) {
    request.budget_bytes = {smallest_peak_partition(request)->peak_bytes * 5 / 4};
  }
  return request;
}

void measure(benchmark::State& state, Kind kind) {
  const PartitionRequest request =
      request_of(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)), kind);
  for (auto _ : state) benchmark::DoNotOptimize(partition(request));
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"layers", "ranks"})->Unit(benchmark::kMillisecond);
  bench->Args({34, 8})->Args({63, 16})->Args({128, 16})->Args({512, 32});
}

BENCHMARK_CAPTURE(measure, one_stage, Kind::OneStage)->Apply(shapes)->Args({4096, 64});
BENCHMARK_CAPTURE(measure, within_a_budget, Kind::Budget)->Apply(shapes);
BENCHMARK_CAPTURE(measure, two_stages_loop, Kind::Loop)->Args({34, 8})->Args({63, 16})->Args({128, 16});
BENCHMARK_CAPTURE(measure, two_stages_v, Kind::V)->Args({34, 8})->Args({63, 16})->Args({128, 16});
BENCHMARK_CAPTURE(measure, recompute, Kind::Recompute)->Args({34, 8})->Args({63, 16})->Args({128, 16});

}  // namespace
}  // namespace penstock::plan
