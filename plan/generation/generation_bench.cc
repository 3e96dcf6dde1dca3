// What searches reach, and how fast: seconds for a budget of evaluations, with the span, its bound and the
// gap as counters. Arguments: P, m, limit in forwards, F, I, W, latency.
#include <benchmark/benchmark.h>

#include "plan/generation/generate.h"

namespace penstock::plan {
namespace {

constexpr int64_t kEvaluationsMax = 2'000;

void search(benchmark::State& state, const char* name, int stages_per_rank, const MemoryDeltas& deltas) {
  const int ranks = static_cast<int>(state.range(0));
  GenerationRequest request;
  request.schedule.name = name;
  request.schedule.ranks = ranks;
  request.schedule.microbatches = static_cast<int>(state.range(1));
  request.costs = uniform_costs(ranks * stages_per_rank, {state.range(3), state.range(4), state.range(5)});
  request.costs->latency = state.range(6);
  request.memory.deltas = {deltas};
  request.memory.limits = {state.range(2) * deltas.forward};
  request.search.evaluations_max = kEvaluationsMax;
  SearchReport report;
  for (auto _ : state) report = *generate(request)->search;
  state.counters["span"] = static_cast<double>(report.max_stage_span);
  state.counters["bound"] = static_cast<double>(report.bound);
  state.counters["gap_percent"] = report.gap_percent;
  state.counters["evaluations"] = static_cast<double>(report.evaluations);
}

void zb_auto(benchmark::State& state) {
  search(state, "zb-auto", 1, {2, -1, -1});  // M_B = 2 M_W
}
void v_auto(benchmark::State& state) {
  search(state, "v-auto", 2, {1, 0, -1});
}

void zero_bubble_table(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"P", "m", "limit", "F", "I", "W", "latency"});
  for (const int64_t memory : {1, 2}) {
    bench->Args({4, 16, 4 * memory, 3, 4, 2, 0});
    bench->Args({8, 24, 8 * memory, 18522, 18086, 9337, 601});
    bench->Args({8, 64, 8 * memory, 29935, 29621, 19388, 535});
    bench->Args({16, 128, 16 * memory, 11325, 11308, 8109, 378});
    bench->Args({32, 256, 32 * memory, 10402, 10248, 7698, 460});
  }
}

void v_shaped_table(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"P", "m", "limit", "F", "I", "W", "latency"});
  for (const int64_t limit : {4, 6, 7, 8}) bench->Args({4, 8, limit, 1, 1, 1, 0});
  for (const int64_t limit : {12, 18, 24, 28, 31, 32}) bench->Args({16, 64, limit, 1, 1, 1, 0});
  bench->Args({16, 48, 32, 14407, 14380, 9676, 1610});
  bench->Args({32, 96, 64, 9458, 9748, 7288, 879});
}

BENCHMARK(zb_auto)->Apply(zero_bubble_table)->Unit(benchmark::kMillisecond)->Iterations(1);
BENCHMARK(v_auto)->Apply(v_shaped_table)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace
}  // namespace penstock::plan
