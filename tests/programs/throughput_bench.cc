// How many actions a second each step from a name to a lowered program takes; tests/speed has the families.
// Arguments: P, m, V.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/simulation/simulate.h"
#include "plan/verification/verify.h"

namespace penstock::plan {
namespace {

ScheduleRequest request_of(const std::string& name, const benchmark::State& state) {
  return {.name = name,
          .ranks = static_cast<int>(state.range(0)),
          .microbatches = static_cast<int>(state.range(1)),
          .stages_per_rank = static_cast<int>(state.range(2))};
}

int64_t actions_of(const ComputeProgram& program) {
  int64_t count = 0;
  for (const auto& actions : program.actions) count += static_cast<int64_t>(actions.size());
  return count;
}

double most_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void all_three(benchmark::State& state, const std::string& name) {
  int64_t actions = 0;
  for (auto _ : state) {
    const ComputeProgram program = *generate(request_of(name, state));
    if (!verify(program).valid()) state.SkipWithError("invalid");
    benchmark::DoNotOptimize(simulate(program, uniform_costs(program.stages(), {1, 1, 1})));
    actions = actions_of(program);
  }
  state.SetItemsProcessed(state.iterations() * actions);
  state.counters["actions"] = static_cast<double>(actions);
  state.counters["most_memory_MiB"] = most_memory_mib();
}

void generate_alone(benchmark::State& state, const std::string& name) {
  for (auto _ : state) benchmark::DoNotOptimize(generate(request_of(name, state)));
  state.SetItemsProcessed(state.iterations() * actions_of(*generate(request_of(name, state))));
}

void verify_alone(benchmark::State& state, const std::string& name) {
  const ComputeProgram program = *generate(request_of(name, state));
  for (auto _ : state) benchmark::DoNotOptimize(verify(program));
  state.SetItemsProcessed(state.iterations() * actions_of(program));
}

void simulate_alone(benchmark::State& state, const std::string& name) {
  const ComputeProgram program = *generate(request_of(name, state));
  const SimulationCosts costs = uniform_costs(program.stages(), {1, 1, 1});
  for (auto _ : state) benchmark::DoNotOptimize(simulate(program, costs));
  state.SetItemsProcessed(state.iterations() * actions_of(program));
}

void lower_alone(benchmark::State& state, const std::string& name) {
  const ComputeProgram program = *generate(request_of(name, state));
  for (auto _ : state) benchmark::DoNotOptimize(lower(program));
  state.SetItemsProcessed(state.iterations() * actions_of(program));
}

void verify_lowered(benchmark::State& state, const std::string& name) {
  const ComputeProgram program = *generate(request_of(name, state));
  const LoweredProgram lowered = *lower(program);
  for (auto _ : state) benchmark::DoNotOptimize(verify(lowered));
  state.SetItemsProcessed(state.iterations() * actions_of(program));
}

void simulate_lowered(benchmark::State& state, const std::string& name) {
  const ComputeProgram program = *generate(request_of(name, state));
  const LoweredProgram lowered = *lower(program);
  const SimulationCosts costs = uniform_costs(program.stages(), {1, 1, 1});
  for (auto _ : state) benchmark::DoNotOptimize(simulate(lowered, costs));
  state.SetItemsProcessed(state.iterations() * actions_of(program));
}

// The largest of the catalogue's figures, 524,288 actions, in every part.
void register_benchmarks() {
  using Function = void (*)(benchmark::State&, const std::string&);
  const std::pair<const char*, Function> parts[] = {{"generate_verify_simulate", all_three},
                                                    {"generate", generate_alone},
                                                    {"verify", verify_alone},
                                                    {"simulate", simulate_alone},
                                                    {"lower", lower_alone},
                                                    {"verify_lowered", verify_lowered},
                                                    {"simulate_lowered", simulate_lowered}};
  for (const auto& [part, function] : parts) {
    benchmark::RegisterBenchmark(fmt::format("{}/interleaved-1f1b", part).c_str(), function,
                                 "interleaved-1f1b")
        ->Args({64, 1024, 4})
        ->Unit(benchmark::kMillisecond);
  }
}

const bool registered = [] {
  register_benchmarks();
  return true;
}();

}  // namespace
}  // namespace penstock::plan
