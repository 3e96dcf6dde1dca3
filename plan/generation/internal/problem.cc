#include "plan/generation/internal/problem.h"

#include <algorithm>

namespace penstock::plan::internal {
namespace {

Lane forward_lane(const Problem& problem, int stage) {
  Lane lane{
      .stage = stage, .duration = problem.costs[stage].forward, .memory = problem.deltas[stage].forward};
  if (stage > 0) {
    lane.input = problem.row(stage - 1, kForward);
    lane.delay = problem.delay_up[stage - 1];
  }
  if (stage + 1 < problem.stages()) lane.consumer = problem.rank_of(stage + 1);
  return lane;
}

Lane input_gradient_lane(const Problem& problem, int stage) {
  Lane lane{.stage = stage,
            .duration = problem.costs[stage].input_gradient,
            .memory = problem.deltas[stage].input_gradient};
  if (stage + 1 < problem.stages()) {
    lane.input = problem.row(stage + 1, kInputGradient);
    lane.delay = problem.delay_down[stage];
  }
  if (stage > 0) lane.consumer = problem.rank_of(stage - 1);
  return lane;
}

// The steps of one microbatch on one rank in the order that takes the least memory.
std::vector<int> lanes_of_one_microbatch(const Problem& problem) {
  std::vector<int> lanes;
  for (int chunk = 0; chunk < problem.stages_per_rank; ++chunk) lanes.push_back(kKinds * chunk + kForward);
  for (int chunk = problem.stages_per_rank - 1; chunk >= 0; --chunk) {
    lanes.push_back(kKinds * chunk + kInputGradient);
    lanes.push_back(kKinds * chunk + kWeightGradient);
  }
  return lanes;
}

ActionKind action_kind(int lane) {
  switch (lane % kKinds) {
    case kForward:
      return ActionKind::Forward;
    case kInputGradient:
      return ActionKind::InputGradient;
    default:
      return ActionKind::WeightGradient;
  }
}

}  // namespace

Ticks Problem::busy(int rank) const {
  Ticks work = 0;
  for (int lane = 0; lane < lanes_per_rank(); ++lane) work += lanes[rank][lane].duration;
  return work * microbatches;
}

bool must_precede(const Step& before, const Step& after) {
  if (before.lane == after.lane) return true;
  if (before.microbatch != after.microbatch) return false;
  const int kind_before = before.lane % kKinds, kind_after = after.lane % kKinds;
  const int chunk_before = before.lane / kKinds, chunk_after = after.lane / kKinds;
  if (chunk_before == chunk_after) return kind_before < kind_after;
  if (kind_after == kForward) return kind_before == kForward && chunk_before < chunk_after;
  if (kind_before == kForward) return true;
  return kind_before == kInputGradient && chunk_before > chunk_after;
}

void add_lanes(Problem& problem) {
  problem.lanes.assign(problem.ranks, {});
  for (int rank = 0; rank < problem.ranks; ++rank) {
    for (int chunk = 0; chunk < problem.stages_per_rank; ++chunk) {
      const int stage = problem.stage_of(rank, chunk);
      auto* lanes = &problem.lanes[rank][kKinds * chunk];
      lanes[kForward] = forward_lane(problem, stage);
      lanes[kInputGradient] = input_gradient_lane(problem, stage);
      lanes[kWeightGradient] = {.stage = stage,
                                .duration = problem.costs[stage].weight_gradient,
                                .memory = problem.deltas[stage].weight_gradient};
    }
  }
}

ComputeProgram to_program(const Problem& problem, const Orders& orders, const std::string& schedule) {
  ComputeProgram program;
  program.schedule = schedule;
  program.ranks = problem.ranks;
  program.microbatches = problem.microbatches;
  program.stages_per_rank = problem.stages_per_rank;
  program.placement =
      problem.stages_per_rank == 1 ? loop_placement(problem.ranks, 1) : v_placement(problem.ranks);
  program.actions.resize(problem.ranks);
  for (int rank = 0; rank < problem.ranks; ++rank) {
    program.actions[rank].reserve(orders[rank].size());
    for (const Step& step : orders[rank]) {
      program.actions[rank].push_back(single(StageIndex(problem.lane(rank, step).stage),
                                             action_kind(step.lane), MicrobatchIndex(step.microbatch)));
    }
  }
  return program;
}

std::vector<int64_t> memory_peaks(const Problem& problem, const Orders& orders) {
  std::vector<int64_t> peaks;
  for (int rank = 0; rank < problem.ranks; ++rank) {
    int64_t held = 0, peak = 0;
    for (const Step& step : orders[rank]) peak = std::max(peak, held += problem.lane(rank, step).memory);
    peaks.push_back(peak);
  }
  return peaks;
}

std::vector<int64_t> smallest_limits(const Problem& problem) {
  Problem single_microbatch = problem;
  single_microbatch.microbatches = 1;
  return memory_peaks(problem, one_at_a_time(single_microbatch));
}

Orders one_at_a_time(const Problem& problem) {
  const std::vector<int> lanes = lanes_of_one_microbatch(problem);
  Orders orders(problem.ranks);
  for (auto& order : orders) {
    order.reserve(lanes.size() * problem.microbatches);
    for (int microbatch = 0; microbatch < problem.microbatches; ++microbatch)
      for (const int lane : lanes) order.push_back({microbatch, lane});
  }
  return orders;
}

}  // namespace penstock::plan::internal
