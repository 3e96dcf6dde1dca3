// Random valid programs of any shape, made by running them: whatever may run next is drawn, so that the lists
// are valid by construction and follow no family's order. For tests.
#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "plan/schedule/dataflow.h"
#include "plan/schedule/program.h"

namespace penstock::plan::judging {

using Random = std::mt19937_64;

inline int draw(Random& random, int below) {
  return static_cast<int>(random() % static_cast<uint64_t>(below));
}

class ProgramDrawer {
 public:
  // `shape` has everything but actions. Each backward is split with `split_percent`, actions pair with
  // `pair_percent`.
  ProgramDrawer(ComputeProgram shape, Random& random, int split_percent, int pair_percent)
      : program_(std::move(shape)),
        random_(random),
        split_percent_(split_percent),
        pair_percent_(pair_percent) {
    program_.actions.assign(program_.ranks, {});
    left_.resize(program_.ranks);
    backwards_left_.assign(program_.ranks, std::vector<int>(program_.updates, 0));
    for (int stage = 0; stage < program_.stages(); ++stage) {
      for (int microbatch = 0; microbatch < program_.total_microbatches(); ++microbatch) {
        add_work(StageIndex(stage), MicrobatchIndex(microbatch));
      }
    }
  }

  ComputeProgram draw_program() {
    while (std::any_of(left_.begin(), left_.end(), [](const auto& works) { return !works.empty(); })) {
      const int rank = draw(random_, program_.ranks);
      std::vector<Work> runnable;
      for (const Work& work : left_[rank]) {
        if (may_run(rank, work)) runnable.push_back(work);
      }
      if (runnable.empty()) continue;
      Action action{take(rank, runnable), std::nullopt};
      if (!runnable.empty() && draw(random_, 100) < pair_percent_) action.overlapped = take(rank, runnable);
      finish(rank, action.work);
      if (action.overlapped) finish(rank, *action.overlapped);
      program_.actions[rank].push_back(action);
    }
    return std::move(program_);
  }

 private:
  void add_work(StageIndex stage, MicrobatchIndex microbatch) {
    const int rank = program_.rank_of(stage, microbatch).value;
    left_[rank].insert({stage, ActionKind::Forward, microbatch});
    if (program_.forward_only) return;
    ++backwards_left_[rank][microbatch.value / program_.microbatches];
    if (draw(random_, 100) >= split_percent_) {
      left_[rank].insert({stage, ActionKind::Backward, microbatch});
      return;
    }
    left_[rank].insert({stage, ActionKind::InputGradient, microbatch});
    left_[rank].insert({stage, ActionKind::WeightGradient, microbatch});
  }

  bool may_run(int rank, const Work& work) const {
    const auto is_done = [&](StageIndex stage, ActionKind kind) {
      return done_.contains({stage, kind, work.microbatch});
    };
    const auto is_back = [&](StageIndex stage) {
      return is_done(stage, ActionKind::Backward) || is_done(stage, ActionKind::InputGradient);
    };
    int steps = 0;
    while (steps < program_.updates && backwards_left_[rank][steps] == 0) ++steps;
    const int update = work.microbatch.value / program_.microbatches;
    if (program_.version_rule == WeightVersionRule::Synchronous && !program_.forward_only && steps < update)
      return false;
    if (program_.version_rule == WeightVersionRule::DoubleBuffered && steps < update - 1) return false;
    const StageIndex before(work.stage.value - 1), after(work.stage.value + 1);
    if (work.kind == ActionKind::Forward)
      return work.stage.value == 0 || is_done(before, ActionKind::Forward);
    if (work.kind == ActionKind::WeightGradient) return is_done(work.stage, ActionKind::InputGradient);
    return is_done(work.stage, ActionKind::Forward) && (after.value == program_.stages() || is_back(after));
  }

  Work take(int rank, std::vector<Work>& runnable) {
    const int drawn = draw(random_, static_cast<int>(runnable.size()));
    const Work work = runnable[drawn];
    runnable.erase(runnable.begin() + drawn);
    left_[rank].erase(work);
    return work;
  }

  void finish(int rank, const Work& work) {
    done_.insert(work);
    if (ends_backward(work.kind)) --backwards_left_[rank][work.microbatch.value / program_.microbatches];
  }

  ComputeProgram program_;
  Random& random_;
  int split_percent_;
  int pair_percent_;
  std::vector<std::set<Work>> left_;              // [rank]
  std::vector<std::vector<int>> backwards_left_;  // [rank][update]
  std::set<Work> done_;
};

// Any placement in which every rank holds a stage, one or two replicas, any rule, split backwards, pairs.
inline ComputeProgram random_program(Random& random) {
  ComputeProgram shape;
  shape.schedule = "file:random";
  shape.ranks = 1 + draw(random, 5);
  shape.stages_per_rank = 1 + draw(random, 3);
  shape.microbatches = 1 + draw(random, 6);
  shape.placement = loop_placement(shape.ranks, shape.stages_per_rank);
  if (draw(random, 2) == 0) std::shuffle(shape.placement.begin(), shape.placement.end(), random);
  const int mode = draw(random, 6);
  shape.forward_only = mode == 0;
  if (mode == 1 && shape.ranks > 1) {
    for (auto& replicas : shape.placement)
      replicas.push_back(RankIndex((replicas[0].value + 1) % shape.ranks));
    for (int i = 0; i < shape.microbatches; ++i) shape.replica_of.push_back(draw(random, 2));
  }
  if (mode >= 3) shape.updates = 1 + draw(random, 4);
  if (mode == 4) shape.version_rule = WeightVersionRule::Stashed;
  if (mode == 5) shape.version_rule = WeightVersionRule::DoubleBuffered;
  const int split_percent = 50 * draw(random, 3);
  const int pair_percent = 40 * draw(random, 2);
  return ProgramDrawer(std::move(shape), random, split_percent, pair_percent).draw_program();
}

// One update of synchronous weights, stage r on rank r: what steps without a barrier are for.
inline ComputeProgram random_flat_program(Random& random) {
  ComputeProgram shape;
  shape.schedule = "file:random";
  shape.ranks = 1 + draw(random, 5);
  shape.microbatches = 1 + draw(random, 8);
  shape.placement = loop_placement(shape.ranks, 1);
  const int split_percent = 50 * draw(random, 3);
  const int pair_percent = 40 * draw(random, 2);
  return ProgramDrawer(std::move(shape), random, split_percent, pair_percent).draw_program();
}

}  // namespace penstock::plan::judging
