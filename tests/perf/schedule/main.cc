// penstock-perf-schedule: how fast the coordinator's way to a schedule is. Prints one JSON object:
//   schedule_actions_per_second  actions of interleaved-1f1b P=64 V=4 m=1024, over the time that it takes to generate,
//                                verify and simulate it: the median of the repetitions
//   peak_bytes                   most memory that the process held
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "plan/schedule/families.h"
#include "plan/simulation/simulate.h"
#include "plan/verification/verify.h"

namespace penstock::perf {
namespace {

int64_t plan_once(const plan::ScheduleRequest& request) {
  const StatusOr<plan::ComputeProgram> program = plan::generate(request);
  PENSTOCK_CHECK(program.ok(), "{}", message(program.status()));
  PENSTOCK_CHECK(plan::verify(*program).valid(), "the schedule is not valid");
  const auto simulation = plan::simulate(*program, plan::uniform_costs(program->stages(), {}));
  PENSTOCK_CHECK(simulation.ok() && simulation->makespan > 0, "the schedule cannot be simulated");
  int64_t actions = 0;
  for (const std::vector<plan::Action>& of_rank : program->actions) actions += std::ssize(of_rank);
  return actions;
}

int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

void run(int repetitions) {
  const plan::ScheduleRequest request{
      .name = "interleaved-1f1b", .ranks = 64, .microbatches = 1024, .stages_per_rank = 4};
  const SystemClock clock;
  int64_t actions = 0;
  std::vector<double> rates;
  for (int i = 0; i < repetitions; ++i) {
    const TimePoint start = clock.now();
    actions = plan_once(request);
    rates.push_back(static_cast<double>(actions) / to_seconds(clock.now() - start));
  }
  std::sort(rates.begin(), rates.end());
  const nlohmann::ordered_json outcome = {{"benchmark", "schedule"},
                                          {"schedule", request.name},
                                          {"ranks", request.ranks},
                                          {"stages_per_rank", request.stages_per_rank},
                                          {"microbatches", request.microbatches},
                                          {"actions", actions},
                                          {"repetitions", repetitions},
                                          {"schedule_actions_per_second", rates[rates.size() / 2]},
                                          {"peak_bytes", peak_bytes()}};
  std::cout << outcome.dump() << "\n";
}

}  // namespace
}  // namespace penstock::perf

int main(int argc, char** argv) {
  int repetitions = 9;
  CLI::App app("Generating, verifying and simulating a large schedule");
  app.add_option("--repetitions", repetitions, "Times that it is done")->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  penstock::perf::run(repetitions);
  return 0;
}
