// How fast the catalogue is: programs of about a million actions, generated, verified and simulated. Items are
// actions; 1f1b-v, v-min and v-half also move every action once before they know its place.
#include <benchmark/benchmark.h>

#include <stdexcept>

#include "plan/schedule/families.h"
#include "plan/simulation/simulate.h"
#include "plan/verification/verify.h"

namespace penstock::plan {
namespace {

int64_t actions_of(const ComputeProgram& program) {
  int64_t count = 0;
  for (const auto& actions : program.actions) count += static_cast<int64_t>(actions.size());
  return count;
}

ComputeProgram million_actions(const std::string& name) {
  StatusOr<ComputeProgram> program = generate({.name = name, .ranks = 64, .microbatches = 4096});
  if (!program.ok()) throw std::runtime_error(message(program.status()));
  return *std::move(program);
}

void generate_only(benchmark::State& state, const std::string& name) {
  int64_t actions = 0;
  for (auto _ : state) actions += actions_of(million_actions(name));
  state.SetItemsProcessed(actions);
}

void generate_verify_simulate(benchmark::State& state, const std::string& name) {
  int64_t actions = 0;
  for (auto _ : state) {
    const ComputeProgram program = million_actions(name);
    if (!verify(program).valid()) throw std::runtime_error(name);
    const StatusOr<Simulation> played = simulate(program, uniform_costs(program.stages(), {1, 1, 1}));
    if (!played.ok()) throw std::runtime_error(message(played.status()));
    actions += actions_of(program);
  }
  state.SetItemsProcessed(actions);
}

[[maybe_unused]] const bool kRegistered = [] {
  for (const std::string& name : schedule_names()) {
    benchmark::RegisterBenchmark(("generate/" + name).c_str(), generate_only, name);
    benchmark::RegisterBenchmark(("generate_verify_simulate/" + name).c_str(), generate_verify_simulate,
                                 name);
  }
  return true;
}();

}  // namespace
}  // namespace penstock::plan
