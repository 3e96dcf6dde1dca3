// penstock-perf-checkpoint: what a checkpoint every ten steps costs the steps beside which it is written.
//
// One rank on one thread, the executor's own session; its writer has a core of its own where there is one. Runs with
// and without checkpoints take turns. Prints one JSON object:
//   checkpoint_stall   mean wall time of a step with checkpoints over that without, less one; the median of the rounds
#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "tests/perf/job/measured_job.h"
#include "tests/perf/measure/times.h"
#include "worker/executor/rank_session.h"
#include "worker/transport/in_process.h"

namespace penstock::perf {
namespace {

constexpr int kWarmUpSteps = 2;
constexpr int kEvery = 10;

// Where the checkpoints of one run go.
class Directory {
 public:
  Directory() {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / kMarker);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  WeightsPlace place() const { return {path_.string(), kMarker}; }

 private:
  static constexpr const char* kMarker = ".attempt-1";
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("penstock_perf_checkpoint_{}", ::getpid());
};

struct Run {
  double seconds_per_step = 0;
  int64_t checkpoint_bytes = 0;  // of the snapshot
};

Run run_steps(MeasuredJob job, bool with_checkpoints) {
  const Directory directory;
  job.extra = with_checkpoints ? fmt::format("checkpoint: {{every: {}}}\n", kEvery) : "";
  ExecutorAssignment assignment = job.assignments().front();
  if (with_checkpoints) assignment.assignment.checkpoints = directory.place();
  worker::InProcessRendezvous rendezvous;
  const SystemClock clock;
  TimePoint start{}, end{};
  Run run;
  // Steps are reported on the interpreter's thread, parts of checkpoints on the writer's.
  const auto report = [&](const codec::ExecutorFrame& frame) {
    const auto* step = std::get_if<StepReport>(&frame);
    if (step == nullptr) return ok_status();
    end = clock.now();
    if (step->step == kWarmUpSteps - 1) start = end;
    for (const MemoryKind& kind : step->memory) {
      if (kind.kind == "snapshot") run.checkpoint_bytes = kind.bytes_peak;
    }
    return ok_status();
  };
  worker::RankSession session(
      assignment,
      {.rendezvous = [&](const std::string&) -> worker::Rendezvous& { return rendezvous; },
       .report = report,
       .make_endpoint =
           [](plan::P2pMode) { return worker::make_in_process_endpoint(worker::make_in_process_hub()); },
       .clock = clock});
  const Status status = session.run();
  PENSTOCK_CHECK(status.ok(), "{}", message(status));
  run.seconds_per_step = to_seconds(end - start) / static_cast<double>(job.steps - kWarmUpSteps);
  return run;
}

int measure(int rounds) {
  const TokenFile tokens(1 << 20, 4096);
  MeasuredJob job{.tokens = tokens.path(),
                  .vocabulary = 4096,
                  .hidden = 256,
                  .layers = 6,
                  .heads = 4,
                  .intermediate = 704,
                  .sequence_length = 128,
                  .microbatch_size = 4,
                  .microbatches = 4,
                  .dtype = "float32",
                  .steps = kWarmUpSteps + 4 * kEvery};
  std::vector<double> stalls, plain;
  Run written;
  for (int round = 0; round < rounds; ++round) {
    plain.push_back(run_steps(job, false).seconds_per_step);
    written = run_steps(job, true);
    stalls.push_back(written.seconds_per_step / plain.back() - 1);
    std::cerr << fmt::format("round {}: {:.4f} s a step, {:+.2f} % with checkpoints\n", round, plain.back(),
                             100 * stalls.back());
  }
  std::cout << nlohmann::ordered_json{{"benchmark", "checkpoint"},
                                      {"every", kEvery},
                                      {"checkpoint_bytes", written.checkpoint_bytes},
                                      {"step_seconds", median(plain)},
                                      {"checkpoint_stall", median(stalls)}}
                   .dump()
            << "\n";
  return 0;
}

}  // namespace
}  // namespace penstock::perf

int main(int argc, char** argv) {
  int rounds = 5;
  CLI::App app("What checkpoints cost the steps beside which they are written");
  app.add_option("--repetitions", rounds, "Rounds, of a run with and one without")->check(CLI::Range(1, 100));
  CLI11_PARSE(app, argc, argv);
  return penstock::perf::measure(rounds);
}
