// penstock-perf-pipeline: two ranks of one thread each, over loopback, against the simulation of what they measured.
//
// The ranks are executors' own RankSessions in two processes; only their daemons are played. Prints one JSON object a
// schedule:
//   pipeline_efficiency  the step's time as simulated from the run's own action times (medians of the step, by stage)
//                        plus its optimizer's, over the time that it took: the median over the steps
//   wait_cpu             CPU time that a rank burnt, with all of its threads, while its compute thread waited, over the
//                        step's time: the worse of the two ranks
//   transport_cpu        CPU time of the threads that move messages, waits or not, over the step's time: the same
//   put_cpu              CPU time of the compute thread in posting, where a one-sided message is put, over the step's time
// It needs two idle cores: what runs beside it is counted as inefficiency.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "plan/schedule/families.h"
#include "plan/simulation/simulate.h"
#include "tests/perf/job/measured_job.h"
#include "tests/perf/measure/times.h"
#include "tests/perf/pipeline/metered_endpoint.h"
#include "worker/executor/rank_session.h"
#include "worker/transport/gloo/endpoint.h"
#include "worker/transport/shared_memory/endpoint.h"
#include "worker/transport/shared_rendezvous.h"

namespace penstock::perf {
namespace {

constexpr int kRanks = 2;
constexpr int kWarmUpSteps = 2;
constexpr int kMostSteps = 64;
constexpr int kMostStages = 8;

// What a rank measured of one step, as plain bytes in memory that the ranks share with the parent.
struct RankStep {
  double wall = 0;
  double optimizer = 0;
  double wait_cpu = 0;
  double transport_cpu = 0;
  double put_cpu = 0;
  std::array<double, kMostStages> forward{};  // [stage]
  std::array<double, kMostStages> backward{};
};
struct Measured {
  std::array<std::array<RankStep, kMostSteps>, kRanks> ranks;
};

// CPU time used so far: by everything while the compute thread waited, and by the threads that move messages.
struct CpuBesideWork {
  Duration in_waits{};
  Duration transport{};
  Duration in_posts{};
};
CpuBesideWork cpu_beside_work(const Meter& meter) {
  return {meter.cpu_in_waits, process_cpu_time() - thread_cpu_time(), meter.cpu_in_posts};
}

void keep(const StepReport& report, const CpuBesideWork& from, const CpuBesideWork& to, RankStep& step) {
  step.wall = report.wall_seconds;
  step.optimizer = report.optimizer_seconds;
  step.wait_cpu = to_seconds(to.in_waits - from.in_waits);
  step.transport_cpu = to_seconds(to.transport - from.transport);
  step.put_cpu = to_seconds(to.in_posts - from.in_posts);
  for (const StageTimes& stage : report.stages) {
    step.forward.at(static_cast<size_t>(stage.stage.value)) = stage.forward_seconds;
    step.backward.at(static_cast<size_t>(stage.stage.value)) = stage.backward_seconds;
  }
}

// A rank's whole life, in its own process. The exit status.
int run_rank(const ExecutorAssignment& assignment, worker::Rendezvous& rendezvous,
             std::array<RankStep, kMostSteps>& steps) {
  Meter meter;
  CpuBesideWork before;
  size_t ended = 0;
  const auto report = [&](const codec::ExecutorFrame& frame) {
    if (const auto* step = std::get_if<StepReport>(&frame)) {
      keep(*step, before, cpu_beside_work(meter), steps.at(ended++));
    }
    before = cpu_beside_work(meter);
    return ok_status();
  };
  const SystemClock clock;
  worker::RankSession session(
      assignment, {.rendezvous = [&](const std::string&) -> worker::Rendezvous& { return rendezvous; },
                   .report = report,
                   .make_endpoint =
                       [&](plan::P2pMode mode) {
                         return metered(mode == plan::P2pMode::OneSided
                                            ? worker::make_shared_memory_endpoint()
                                            : worker::make_gloo_endpoint(),
                                        meter);
                       },
                   .clock = clock});
  const Status status = session.run();
  if (!status.ok())
    std::cerr << "rank " << assignment.assignment.rank.value << ": " << message(status) << "\n";
  return status.ok() ? 0 : 1;
}

bool run_ranks(const std::vector<ExecutorAssignment>& assignments, Measured& measured) {
  worker::SharedRendezvous* rendezvous = worker::SharedRendezvous::create();
  std::vector<pid_t> children;
  for (int rank = 0; rank < kRanks; ++rank) {
    const pid_t child = fork();
    PENSTOCK_CHECK(child >= 0, "fork failed");
    if (child == 0) _exit(run_rank(assignments[rank], *rendezvous, measured.ranks[rank]));
    children.push_back(child);
  }
  bool all_well = true;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    all_well = all_well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  worker::SharedRendezvous::destroy(rendezvous);
  return all_well;
}

// Nanoseconds are the ticks.
double simulated_seconds(const plan::ComputeProgram& program, const Measured& measured, int step) {
  constexpr double kTicksPerSecond = 1e9;
  plan::SimulationCosts costs = plan::uniform_costs(program.stages(), {});
  for (int stage = 0; stage < program.stages(); ++stage) {
    const int rank = program.rank_of(StageIndex(stage), MicrobatchIndex(0)).value;
    const RankStep& times = measured.ranks[rank][step];
    costs.stages[stage].forward = static_cast<plan::Ticks>(times.forward[stage] * kTicksPerSecond);
    costs.stages[stage].input_gradient = static_cast<plan::Ticks>(times.backward[stage] * kTicksPerSecond);
    costs.stages[stage].weight_gradient = 0;
  }
  const StatusOr<plan::Simulation> simulation = plan::simulate(program, costs);
  PENSTOCK_CHECK(simulation.ok(), "{}", message(simulation.status()));
  return static_cast<double>(simulation->makespan) / kTicksPerSecond;
}

nlohmann::ordered_json outcome_of(const MeasuredJob& job, const plan::ComputeProgram& program,
                                  const Measured& measured) {
  std::vector<double> efficiency, wall, simulated;
  std::array<std::vector<double>, kRanks> wait_cpu, transport_cpu, put_cpu;
  for (int step = kWarmUpSteps; step < job.steps; ++step) {
    double slowest = 0, optimizer = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const RankStep& times = measured.ranks[rank][step];
      slowest = std::max(slowest, times.wall);
      optimizer = std::max(optimizer, times.optimizer);
      wait_cpu[rank].push_back(times.wait_cpu / times.wall);
      transport_cpu[rank].push_back(times.transport_cpu / times.wall);
      put_cpu[rank].push_back(times.put_cpu / times.wall);
    }
    wall.push_back(slowest);
    simulated.push_back(simulated_seconds(program, measured, step) + optimizer);
    efficiency.push_back(simulated.back() / slowest);
  }
  return {{"benchmark", "pipeline"},
          {"schedule", job.schedule},
          {"ranks", kRanks},
          {"stages_per_rank", job.stages_per_rank},
          {"microbatches", program.microbatches},
          {"dtype", job.dtype},
          {"p2p", job.p2p},
          {"repetitions", efficiency.size()},
          {"step_seconds", median(wall)},
          {"simulated_seconds", median(simulated)},
          {"pipeline_efficiency", median(efficiency)},
          {"wait_cpu", std::max(median(wait_cpu[0]), median(wait_cpu[1]))},
          {"transport_cpu", std::max(median(transport_cpu[0]), median(transport_cpu[1]))},
          {"put_cpu", std::max(median(put_cpu[0]), median(put_cpu[1]))}};
}

bool measure(MeasuredJob job) {
  const std::vector<ExecutorAssignment> assignments = job.assignments();
  const plan::ComputeProgram program = job.program();
  void* memory = mmap(nullptr, sizeof(Measured), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  PENSTOCK_CHECK(memory != MAP_FAILED);
  auto* measured = new (memory) Measured;
  const bool all_well = run_ranks(assignments, *measured);
  if (all_well) std::cout << outcome_of(job, program, *measured).dump() << std::endl;
  munmap(memory, sizeof(Measured));
  return all_well;
}

}  // namespace
}  // namespace penstock::perf

int main(int argc, char** argv) {
  int repetitions = 7;
  std::string dtype = "float32", p2p = "two-sided";
  CLI::App app("Two ranks over loopback against the simulation of what they measured");
  app.add_option("--repetitions", repetitions, "Steps that are measured")->check(CLI::Range(1, 60));
  app.add_option("--dtype", dtype, "bfloat16 or float32")->check(CLI::IsMember({"bfloat16", "float32"}));
  app.add_option("--p2p", p2p, "two-sided or one-sided")->check(CLI::IsMember({"two-sided", "one-sided"}));
  CLI11_PARSE(app, argc, argv);
  using namespace penstock::perf;
  const TokenFile tokens(1 << 20, 8000);
  for (const auto& [schedule, stages_per_rank] : {std::pair{"1f1b", 1}, {"interleaved-1f1b", 2}}) {
    const MeasuredJob job{.tokens = tokens.path(),
                          .schedule = schedule,
                          .ranks = kRanks,
                          .stages_per_rank = stages_per_rank,
                          .p2p = p2p,
                          .dtype = dtype,
                          .steps = kWarmUpSteps + repetitions};
    if (!measure(job)) return 1;
  }
  return 0;
}
