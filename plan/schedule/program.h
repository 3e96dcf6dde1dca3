// A compute program: what every rank computes, in order. What a schedule family generates, what a user may
// bring in a file, and what verification, simulation and lowering read. Plain data.
#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "plan/schedule/action.h"

namespace penstock::plan {

// Which weights a forward and its backward see (design of each in the family's file).
enum class WeightVersionRule : uint8_t {
  Synchronous,     // one version; all of a step's microbatches see the same weights
  Stashed,         // PipeDream: a forward uses the newest version, its backward the same one, kept until then
  DoubleBuffered,  // PipeDream-2BW: two versions, a step computes with the weights of the step before
};

struct ComputeProgram {
  std::string schedule;     // the name it was asked for by: "1f1b", "file:x.json"
  int ranks = 0;            // P
  int microbatches = 0;     // m of one optimizer step; actions number the microbatches of all updates through
  int stages_per_rank = 1;  // V
  bool forward_only = false;  // evaluation: forwards only, nothing accumulates
  int updates = 1;            // optimizer steps that the program spans; its microbatches are m x updates
  WeightVersionRule version_rule = WeightVersionRule::Synchronous;

  // placement[stage] lists the ranks that hold a replica of the stage: one, or two for DualPipe and Chimera.
  std::vector<std::vector<RankIndex>> placement;
  // replica_of[microbatch] says which of them runs it; empty means 0 for all (single replicas).
  std::vector<int> replica_of;

  std::vector<std::vector<Action>> actions;  // [rank], in order

  std::string note;  // what this shape costs, for people; mostly empty

  int stages() const { return static_cast<int>(placement.size()); }
  int total_microbatches() const { return microbatches * updates; }
  bool has_replicas() const;
  // The rank that runs `stage` for `microbatch`; both must be in range.
  RankIndex rank_of(StageIndex stage, MicrobatchIndex microbatch) const;
  StageIndex loss_stage() const { return StageIndex(stages() - 1); }  // by identity, never by rank
};

// Loop placement: stage s on rank s mod P. V placement: s for s < P, else 2P-1-s (V = 2).
std::vector<std::vector<RankIndex>> loop_placement(int ranks, int stages_per_rank);
std::vector<std::vector<RankIndex>> v_placement(int ranks);

// Whether every stage's weight gradients accumulate in microbatch order: then the loss curve is bit-identical
// to that of any other such program. Norms form theirs with the input gradient, so both halves of a split backward
// count; the head forms its own with its loss, so the forwards of the loss stage count too.
bool accumulates_in_microbatch_order(const ComputeProgram& program);

// H_s per stage: the maximum over time of (forwards started - backwards finished), W being the backward's end
// where it is split, and F itself in a forward-only program. Counted in program order on the rank that holds
// the stage; replicas report the larger.
std::vector<int> high_water_per_stage(const ComputeProgram& program);

// Most forwards held at once by each rank, over all of its stages, until B or W (`until_weight_gradient`) or
// until B or I (otherwise).
std::vector<int> peak_activations_per_rank(const ComputeProgram& program, bool until_weight_gradient);

}  // namespace penstock::plan
