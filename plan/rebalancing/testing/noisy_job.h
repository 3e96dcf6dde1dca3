// Jobs whose layers take what a table says, and what their ranks would tell of it. For tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plan/rebalancing/measured_run.h"
#include "plan/simulation/simulate.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/schedule_source.h"

namespace penstock::plan::testing {

struct Shape {
  int pipeline = 8;
  int blocks = 15;
  int microbatches = 16;
  std::string split = "auto";
  std::string schedule = "1f1b";
  std::string more = "";
};

inline JobSpec job_of(const Shape& shape) {
  const StatusOr<JobSpec> job = parse_job_spec(
      fmt::format("name: tiny\n"
                  "model: {{vocab_size: 256, hidden_size: 8, num_hidden_layers: {}, num_attention_heads: 2,\n"
                  "        intermediate_size: 16, max_position_embeddings: 8}}\n"
                  "data: {{source: /data/text.txt, sequence_length: 8}}\n"
                  "train: {{steps: 100, global_batch_size: {}, microbatch_size: 1, dtype: float32{}}}\n"
                  "parallel: {{pipeline: {}, schedule: {}, split: {}}}\n{}",
                  shape.blocks, shape.microbatches,
                  shape.schedule.starts_with("pipedream") ? ", optimizer: {clip_grad_norm: 0}" : "",
                  shape.pipeline, shape.schedule, shape.split, shape.more));
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(JobSpec{});
}

// What the layers really take: forward and backward in seconds.
struct Truth {
  std::pair<double, double> embedding = {0.0005, 0.001};
  std::pair<double, double> block = {0.003, 0.006};
  std::pair<double, double> head = {0.010, 0.019};
};

inline std::pair<double, double> stage_seconds(const Truth& truth, const std::vector<Item>& items) {
  std::pair<double, double> sum;
  for (const Item& item : items) {
    const auto& cost = item.kind == ItemKind::Embedding ? truth.embedding
                       : item.kind == ItemKind::Head    ? truth.head
                                                        : truth.block;
    sum.first += cost.first;
    sum.second += cost.second;
  }
  return sum;
}

// A step of the split by the simulation of the true costs: what no proposal has seen.
inline double true_step_seconds(const ComputeProgram& program, const Truth& truth, const Split& split,
                                const std::vector<double>& optimizer_seconds = {}) {
  SimulationCosts costs;
  for (const double seconds : optimizer_seconds) costs.updates.push_back(std::llround(1e9 * seconds));
  for (const auto& items : split) {
    const auto [forward, backward] = stage_seconds(truth, items);
    const auto ns = static_cast<int64_t>(std::llround(1e9 * backward));
    costs.stages.push_back({.forward = std::llround(1e9 * forward),
                            .input_gradient = ns - ns / 2,
                            .weight_gradient = ns / 2,
                            .backward = ns});
  }
  const StatusOr<Simulation> simulation = simulate(program, costs);
  EXPECT_TRUE(simulation.ok()) << simulation.status();
  return simulation.ok() ? static_cast<double>(simulation->makespan) / 1e9 : 0;
}

// As its ranks would tell of it: every sample off by up to `noise` of it.
inline MeasuredRun measured(const JobSpec& job, const Truth& truth, double noise = 0.02, int steps = 40) {
  std::mt19937 random(7);
  const auto noisy = [&](double seconds) {
    return seconds * std::uniform_real_distribution<>(1 - noise, 1 + noise)(random);
  };
  MeasuredRun run;
  run.split = job.parallel.split;
  for (size_t stage = 0; stage < run.split.size(); ++stage) {
    const auto [forward, backward] = stage_seconds(truth, run.split[stage]);
    StageSamples& samples = run.stages.emplace_back().emplace_back();
    samples.rank = static_cast<int>(stage);
    for (int step = 0; step < steps; ++step) {
      samples.forward_seconds.push_back(noisy(forward));
      samples.backward_seconds.push_back(noisy(backward));
    }
  }
  const double seconds = true_step_seconds(*compute_program(job), truth, run.split);
  for (int step = 0; step < steps; ++step) run.step_seconds.push_back(noisy(seconds));
  return run;
}

}  // namespace penstock::plan::testing
