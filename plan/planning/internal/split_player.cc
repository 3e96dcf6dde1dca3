#include "plan/planning/internal/split_player.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace penstock::plan {
namespace {

constexpr int64_t kLongestNs = 4'000'000'000'000'000'000;

size_t at(int index) {
  return static_cast<size_t>(index);
}

template <typename Value>
std::vector<int64_t> sums_of(size_t layers, const Value& value) {
  std::vector<int64_t> sums = {0};
  for (size_t layer = 0; layer < layers; ++layer) sums.push_back(sums.back() + value(layer));
  return sums;
}

}  // namespace

SplitPlayer::SplitPlayer(const PlanningRequest& request, const Playable& playable, Replay replay)
    : request_(&request), playable_(&playable), replay_(std::move(replay)) {
  const size_t layers = request.layers.size();
  const int stages = playable.program.stages();
  for (int stage = 0; stage < stages; ++stage)
    rank_of_.push_back(rank_of_stage(playable.partition.placement, request.ranks, stage));
  forwards_ = sums_of(layers, [&](size_t layer) { return request.forward_ns[layer]; });
  costs_.latency = request.latency_ns;
  costs_.stages.resize(at(stages));
  if (!request.updates_wait || playable.program.updates != 1 || request.update_ns.empty()) return;
  updates_ = sums_of(layers, [&](size_t layer) { return request.update_ns[layer]; });
  shares_ = sums_of(layers, [&](size_t layer) { return update_share_ns(request, layer); });
}

StatusOr<SplitPlayer> SplitPlayer::of(const PlanningRequest& request, const Playable& playable) {
  PENSTOCK_ASSIGN_OR_RETURN(Replay replay, Replay::of(playable.program));
  return SplitPlayer(request, playable, std::move(replay));
}

int64_t SplitPlayer::at_speed(int rank, int64_t ns) const {
  if (request_->rank_speed.empty()) return ns;
  const double speed = static_cast<double>(request_->rank_speed[at(rank)]) / kSpeedUnit;
  return std::llround(std::min(static_cast<double>(ns) / speed, static_cast<double>(kLongestNs)));
}

// Forward and backward of every stage, and updates; what recomputes does so in the backward.
Status SplitPlayer::set_split(const std::vector<int>& boundaries, const std::vector<int64_t>& stage_ns) {
  if (!updates_.empty()) costs_.updates.assign(at(request_->ranks), 0);
  for (size_t stage = 0; stage < stage_ns.size(); ++stage) {
    const size_t begin = at(boundaries[stage]), end = at(boundaries[stage + 1]);
    const int rank = rank_of_[stage];
    int64_t total = stage_ns[stage];
    if (!updates_.empty()) {
      const int64_t update = at_speed(rank, updates_[end] - updates_[begin]);
      costs_.updates[at(rank)] = std::min(kLongestNs, costs_.updates[at(rank)] + update);
      total -= at_speed(rank, shares_[end] - shares_[begin]);
    }
    const int64_t forward = at_speed(rank, forwards_[end] - forwards_[begin]);
    const int64_t backward = std::max<int64_t>(0, total - forward);
    costs_.stages[stage] = {.forward = forward,
                            .input_gradient = backward - backward / 2,
                            .weight_gradient = backward / 2,
                            .backward = backward};
  }
  return replay_.set_costs(costs_);
}

StatusOr<PlannedStep> SplitPlayer::play(Partition partition) {
  PENSTOCK_RETURN_IF_ERROR(set_split(partition.boundaries, partition.stage_ns));
  const Ticks makespan = replay_.play();
  PlannedStep step;
  step.choice = playable_->choice;
  step.placement = playable_->partition.placement;
  step.partition = std::move(partition);
  step.step_ns = step_ns(makespan);
  const double of_all_ranks = static_cast<double>(makespan) * request_->ranks;
  if (makespan > 0) step.bubble_fraction = 1 - static_cast<double>(replay_.busy()) / of_all_ranks;
  return step;
}

}  // namespace penstock::plan
