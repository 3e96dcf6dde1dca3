// penstock-perf-step: one rank's training step on one thread against its matrix products alone, in turns.
//
// The step is the executor's own: a RankSession with one rank, its interpreter, optimizer and reports; only the daemon
// is played. Prints one JSON object:
//   step_over_gemm        median CPU time of a step over the median of its matrix products. One thread computes, so
//                         that on a quiet machine this is the wall clock's ratio, printed as step_over_gemm_wall.
//   allocations_per_step  most calls of operator new that a step after the second made from our own code
//   library_allocations_per_step  the same from the libraries: oneDNN's executions
// With --profile also, on stderr, where the products' time goes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/clock.h"
#include "tests/perf/job/measured_job.h"
#include "tests/perf/measure/bare_products.h"
#include "tests/perf/measure/times.h"
#include "tests/perf/step/counted_new.h"
#include "tests/perf/step/shapes.h"
#include "worker/executor/rank_session.h"
#include "worker/transport/in_process.h"

namespace penstock::perf {
namespace {

constexpr int kWarmUpSteps = 2;

MeasuredJob job_of(const StepShape& shape, const TokenFile& tokens, int steps) {
  return {.tokens = tokens.path(),
          .vocabulary = shape.vocabulary,
          .hidden = shape.hidden,
          .layers = shape.layers,
          .heads = shape.heads,
          .intermediate = shape.intermediate,
          .sequence_length = shape.sequence_length,
          .microbatch_size = shape.microbatch_size,
          .microbatches = shape.microbatches,
          .dtype = shape.dtype(),
          .steps = steps};
}

// Runs the bare products after every step, and keeps both times.
class Measurement {
 public:
  Measurement(const StepShape& shape, int steps)
      : shape_(shape), products_(products_of_microbatch(shape), shape.type) {
    step_.reserve(static_cast<size_t>(steps));
    bare_.reserve(static_cast<size_t>(steps));
  }

  // Called by the session when a step has ended; the next one begins when it returns.
  Status step_ended() {
    const Times end = Times::now();
    const Allocations now = allocations_so_far();
    ++steps_;
    if (steps_ > kWarmUpSteps) {
      step_.push_back(end - start_);
      own_ = std::max(own_, now.own - before_.own);
      libraries_ = std::max(libraries_, now.libraries - before_.libraries);
      const Times bare_start = Times::now();
      for (int64_t m = 0; m < shape_.microbatches; ++m) products_.run();
      bare_.push_back(Times::now() - bare_start);
      std::cerr << fmt::format("step {}: {:.3f} s, its products alone {:.3f} s\n", steps_, step_.back().cpu,
                               bare_.back().cpu);
    }
    before_ = allocations_so_far();
    start_ = Times::now();
    return ok_status();
  }

  nlohmann::ordered_json result(const std::string& fingerprint) const {
    const auto of = [](const std::vector<Times>& times, double Times::*clock) {
      std::vector<double> values;
      for (const Times& each : times) values.push_back(each.*clock);
      return median(values);
    };
    const double step = of(step_, &Times::cpu);
    const double bare = of(bare_, &Times::cpu);
    return {{"benchmark", "step"},
            {"dtype", shape_.dtype()},
            {"hidden", shape_.hidden},
            {"layers", shape_.layers},
            {"vocabulary", shape_.vocabulary},
            {"sequence_length", shape_.sequence_length},
            {"microbatch_size", shape_.microbatch_size},
            {"microbatches", shape_.microbatches},
            {"fingerprint", fingerprint},
            {"repetitions", step_.size()},
            {"step_seconds", step},
            {"gemm_seconds", bare},
            {"gemm_gflops", total_flops() / bare / 1e9},
            {"step_over_gemm", step / bare},
            {"step_over_gemm_wall", of(step_, &Times::wall) / of(bare_, &Times::wall)},
            {"allocations_per_step", own_},
            {"library_allocations_per_step", libraries_}};
  }

  void print_profile() {
    for (const BareProducts::Row& row : products_.profile()) {
      std::cerr << fmt::format("{:36} [{:5}, {:5}] x {:5}  x {:4}  {:8.2f} ms  {:4.0f} GFLOP/s\n",
                               row.product.name, row.product.rows, row.product.columns, row.product.inner,
                               row.product.count, 1e3 * row.seconds, flops(row.product) / row.seconds / 1e9);
    }
  }

 private:
  double total_flops() const {
    double total = 0;
    for (const Product& product : products_of_microbatch(shape_)) total += flops(product);
    return total * static_cast<double>(shape_.microbatches);
  }

  StepShape shape_;
  BareProducts products_;
  std::vector<Times> step_;
  std::vector<Times> bare_;
  int steps_ = 0;
  int64_t own_ = 0;
  int64_t libraries_ = 0;
  Allocations before_;
  Times start_;
};

int run(const StepShape& shape, int repetitions, bool profile) {
  const int steps = kWarmUpSteps + repetitions;
  const TokenFile tokens(1 << 20, shape.vocabulary);
  Measurement measurement(shape, steps);
  if (profile) measurement.print_profile();
  worker::InProcessRendezvous rendezvous;
  const SystemClock clock;
  std::string fingerprint;
  const auto report = [&](const codec::ExecutorFrame& frame) {
    if (const auto* ready = std::get_if<RankReady>(&frame)) fingerprint = ready->fingerprint;
    return std::holds_alternative<StepReport>(frame) ? measurement.step_ended() : ok_status();
  };
  worker::RankSession session(
      job_of(shape, tokens, steps).assignments().front(),
      {.rendezvous = [&](const std::string&) -> worker::Rendezvous& { return rendezvous; },
       .report = report,
       .make_endpoint =
           [](plan::P2pMode) { return worker::make_in_process_endpoint(worker::make_in_process_hub()); },
       .clock = clock});
  const Status status = session.run();
  if (!status.ok()) {
    std::cerr << "penstock-perf-step: " << message(status) << "\n";
    return 1;
  }
  std::cout << measurement.result(fingerprint).dump() << "\n";
  return 0;
}

}  // namespace
}  // namespace penstock::perf

int main(int argc, char** argv) {
  penstock::perf::StepShape shape;
  std::string dtype = "bfloat16";
  int repetitions = 5;
  bool profile = false;
  CLI::App app("A training step against its matrix products alone, on one thread");
  app.add_option("--dtype", dtype, "bfloat16 or float32")->check(CLI::IsMember({"bfloat16", "float32"}));
  app.add_option("--repetitions", repetitions, "Steps that are measured")->check(CLI::Range(1, 1000));
  app.add_option("--microbatches", shape.microbatches, "Microbatches of a step")->check(CLI::Range(1, 1024));
  app.add_flag("--profile", profile, "Say on stderr how long each product takes");
  CLI11_PARSE(app, argc, argv);
  shape.type =
      dtype == "bfloat16" ? penstock::kernels::DataType::BFloat16 : penstock::kernels::DataType::Float32;
  return penstock::perf::run(shape, repetitions, profile);
}
