// What is searched for: one program shape with its costs and memory limits, looked up by rank and lane.
//
// A lane is what a rank does again and again: forward, input gradient or weight gradient of one of its
// stages. Every lane runs its microbatches in order, so that a step of a rank is a lane and how often it
// came before.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/generation/generate.h"

namespace penstock::plan::internal {

constexpr int kForward = 0;
constexpr int kInputGradient = 1;
constexpr int kWeightGradient = 2;
constexpr int kKinds = 3;
constexpr int kStagesPerRankMax = 2;

struct Step {
  int32_t microbatch = 0;
  int32_t lane = 0;  // kKinds * (how-manieth stage of the rank) + kind

  bool operator==(const Step&) const = default;
};

using Orders = std::vector<std::vector<Step>>;  // [rank]: its steps

struct Lane {
  int stage = 0;
  Ticks duration = 0;
  int64_t memory = 0;
  // Where the input comes from: the end of the same microbatch in `input` (see Problem::slot), `delay`
  // later; -1: none.
  int64_t input = -1;
  Ticks delay = 0;
  int consumer = -1;  // the rank that waits for its end, which may be the same; -1: none
};

struct Problem {
  int ranks = 0;
  int stages_per_rank = 1;  // 1, or 2 on the V placement
  int microbatches = 0;
  std::vector<StageCosts> costs = {};     // [stage]
  std::vector<Ticks> delay_up = {};       // [s]: of an activation from stage s to s+1; 0 on one rank
  std::vector<Ticks> delay_down = {};     // [s]: of a gradient from stage s+1 to s
  std::vector<MemoryDeltas> deltas = {};  // [stage]
  std::vector<int64_t> limits = {};       // [rank]
  std::vector<std::array<Lane, kKinds* kStagesPerRankMax>> lanes = {};  // [rank]; see add_lanes

  int stages() const { return ranks * stages_per_rank; }
  int64_t steps() const { return int64_t{kKinds} * stages() * microbatches; }
  int lanes_per_rank() const { return kKinds * stages_per_rank; }
  int rank_of(int stage) const { return stage < ranks ? stage : 2 * ranks - 1 - stage; }
  int stage_of(int rank, int chunk) const { return chunk == 0 ? rank : 2 * ranks - 1 - rank; }
  const Lane& lane(int rank, const Step& step) const { return lanes[rank][step.lane]; }
  // Where a table of ends keeps the row of a stage's forwards or input gradients.
  int64_t row(int stage, int kind) const { return (int64_t{kind} * stages() + stage) * microbatches; }
  Ticks busy(int rank) const;  // all of its work
};

// Whether two steps of one rank stand in this order in every program: the same lane runs in order; a stage
// runs F, I, W; the activation goes up through the rank's stages and the gradient comes down.
bool must_precede(const Step& before, const Step& after);

// Fills in `lanes` from the rest.
void add_lanes(Problem& problem);

// The orders as a compute program. The orders hold every step once.
ComputeProgram to_program(const Problem& problem, const Orders& orders, const std::string& schedule);

// Most memory in use on each rank, counted in program order.
std::vector<int64_t> memory_peaks(const Problem& problem, const Orders& orders);

// The most that one microbatch alone takes on each rank: no smaller limit works.
std::vector<int64_t> smallest_limits(const Problem& problem);

// Every microbatch through all stages and back before the next one: valid within any limit that works.
Orders one_at_a_time(const Problem& problem);

}  // namespace penstock::plan::internal
