// penstock-perf-planner: how long splits and plans take, in seconds of CPU: medians. Prints a JSON object each:
//   split_seconds          the exact split of 512 layers over 32 ranks
//   plan_seconds           a plan of 61 blocks on 16 ranks, 64 microbatches, by every schedule that needs no search
//   searched_plan_seconds  by those that are searched for too, with as many tries as without a clock
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "plan/partition/partition.h"
#include "plan/planning/planner.h"
#include "tests/perf/measure/times.h"

namespace penstock::perf {
namespace {

// An embedding, blocks that differ by at most 1.3 %, as measured ones do, and a head of nearly four of them.
std::vector<plan::LayerCost> layers_of(int count) {
  std::vector<plan::LayerCost> layers(static_cast<size_t>(count));
  for (int layer = 0; layer < count; ++layer) {
    layers[static_cast<size_t>(layer)].keep = {.time_ns = 7'900'000 + (layer * 7'919) % 100'000,
                                               .activation_bytes = 200'000'000,
                                               .static_bytes = 1'800'000'000};
  }
  layers.front().keep.time_ns = 2'000'000;
  layers.back().keep.time_ns = 30'000'000;
  return layers;
}

plan::PartitionRequest split_request() {
  plan::PartitionRequest request;
  request.layers = layers_of(512);
  request.ranks = 32;
  for (int stage = 0; stage < request.ranks; ++stage) request.in_flight.push_back(request.ranks - stage);
  return request;
}

plan::PlanningRequest plan_request(bool searched) {
  plan::PlanningRequest request;
  request.layers = layers_of(63);
  for (const plan::LayerCost& layer : request.layers) request.forward_ns.push_back(layer.keep.time_ns / 3);
  request.ranks = 16;
  request.microbatches = 64;
  request.asked = {"1f1b", 1};
  request.among = plan::schedules_to_plan(searched);
  return request;
}

void split() {
  static const plan::PartitionRequest request = split_request();
  const StatusOr<plan::PartitionAnswer> answer = plan::partition(request);
  PENSTOCK_CHECK(answer.ok() && answer->feasible && answer->plan.exact, "the split is not the exact one");
}

void plan_by(bool searched) {
  const plan::PlanningRequest request = plan_request(searched);
  const StatusOr<plan::PlanningAnswer> answer = plan::plan_training(request);
  PENSTOCK_CHECK(answer.ok() && answer->plans.size() + answer->left_out.size() == request.among.size(),
                 "a schedule has not been looked at");
  PENSTOCK_CHECK(!answer->is_cut_short, "the plan was cut short");
}

template <typename Work>
void measure(const char* name, int repetitions, const Work& work) {
  work();  // memory and caches
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i) {
    const Times start = Times::now();
    work();
    seconds.push_back((Times::now() - start).cpu);
  }
  const nlohmann::ordered_json outcome = {
      {"benchmark", "planner"}, {"repetitions", repetitions}, {name, median(seconds)}};
  std::cout << outcome.dump() << std::endl;
}

}  // namespace
}  // namespace penstock::perf

int main(int argc, char** argv) {
  int repetitions = 5;
  CLI::App app("Splitting and planning large models");
  app.add_option("--repetitions", repetitions, "Times that each plan is made")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  using namespace penstock::perf;
  measure("split_seconds", 100 * repetitions, split);
  measure("plan_seconds", repetitions, [] { plan_by(false); });
  measure("searched_plan_seconds", repetitions, [] { plan_by(true); });
  return 0;
}
