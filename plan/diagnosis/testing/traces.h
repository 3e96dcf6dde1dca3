// Traces with a known cause. Times of healthy machines: stages vary by 2 % between microbatches and each rank by up to 1 % from its
// like (published: 2 to 3 %, and 1 to 2 % between identical stages).
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "plan/diagnosis/diagnose.h"

namespace penstock::plan::testing {

struct TraceShape {
  size_t stages = 4;
  size_t replicas = 2;
  int microbatches = 64;
  double noise = 0.02;
  double rank_noise = 0;  // half of the width in which a cell's own level lies
  // By what a microbatch is longer than another, on all stages of its replica.
  std::function<double(std::mt19937&)> length = [](std::mt19937&) { return 1.0; };
};

inline void slow_down(CellSamples& cell, double factor) {
  for (double& ms : cell.forward_ms) ms *= factor;
  for (double& ms : cell.backward_ms) ms *= factor;
}

// Even stages of 20 and 40 ms.
inline StageTrace trace_of(const TraceShape& shape, std::mt19937& engine) {
  std::normal_distribution<double> noise(1, shape.noise);
  StageTrace trace;
  trace.cells.assign(shape.stages, std::vector<CellSamples>(shape.replicas));
  for (int microbatch = 0; microbatch < shape.microbatches; ++microbatch) {
    for (size_t replica = 0; replica < shape.replicas; ++replica) {
      const double length = shape.length(engine);
      for (auto& stage : trace.cells) {
        stage[replica].forward_ms.push_back(20 * length * noise(engine));
        stage[replica].backward_ms.push_back(40 * length * noise(engine));
      }
    }
  }
  std::uniform_real_distribution<double> level(1 - shape.rank_noise, 1 + shape.rank_noise);
  for (auto& stage : trace.cells) {
    for (CellSamples& cell : stage) slow_down(cell, level(engine));
  }
  return trace;
}

inline StageTrace trace_of(const TraceShape& shape, uint32_t seed) {
  std::mt19937 engine(seed);
  return trace_of(shape, engine);
}

inline void slow_stage(StageTrace& trace, size_t stage, double factor) {
  for (CellSamples& cell : trace.cells[stage]) slow_down(cell, factor);
}

inline void slow_replica(StageTrace& trace, size_t replica, double factor) {
  for (auto& stage : trace.cells) slow_down(stage[replica], factor);
}

// Ranks of a job: those of one place in the pipelines are neighbours. `of_stage` is the pipeline rank of each stage.
inline void place_on_ranks(StageTrace& trace, const std::vector<int>& of_stage) {
  const int replicas = static_cast<int>(trace.cells[0].size());
  trace.ranks.clear();
  for (const int rank : of_stage) {
    std::vector<int>& ranks = trace.ranks.emplace_back();
    for (int replica = 0; replica < replicas; ++replica) ranks.push_back(rank * replicas + replica);
  }
}

}  // namespace penstock::plan::testing
