#include "plan/partition/split_costs.h"

#include <algorithm>

#include "plan/partition/internal/cost_model.h"
#include "plan/partition/internal/rank_choice.h"

namespace penstock::plan {
namespace {

constexpr size_t kRanksKept = 1 << 16;

size_t at(int index) {
  return static_cast<size_t>(index);
}

template <typename Value>
std::vector<int64_t> sums_of(const std::vector<LayerCost>& layers, const Value& value) {
  std::vector<int64_t> sums = {0};
  for (const LayerCost& layer : layers) sums.push_back(sums.back() + value(layer));
  return sums;
}

}  // namespace

size_t SplitCosts::RunsHash::operator()(const std::vector<int>& runs) const {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const int boundary : runs) hash = (hash ^ static_cast<uint64_t>(boundary)) * 0x100000001b3ULL;
  return hash;
}

SplitCosts::SplitCosts(const PartitionRequest& request)
    : request_(request),
      stages_of_(at(request.ranks)),
      stage_ns_(at(request.ranks) * at(request.stages_per_rank), 0) {
  const std::vector<LayerCost>& layers = request.layers;
  recomputes_ =
      std::any_of(layers.begin(), layers.end(), [](const LayerCost& l) { return l.recompute.has_value(); });
  times_ = sums_of(layers, [](const LayerCost& layer) { return layer.keep.time_ns; });
  activations_ = sums_of(layers, [](const LayerCost& layer) { return layer.keep.activation_bytes; });
  statics_ = sums_of(layers, [](const LayerCost& layer) { return layer.keep.static_bytes; });
  for (int stage = 0; stage < request.ranks * request.stages_per_rank; ++stage)
    stages_of_[at(rank_of_stage(request.placement, request.ranks, stage))].push_back(stage);
}

const std::vector<int64_t>* SplitCosts::stage_times(const std::vector<int>& boundaries) {
  for (int rank = 0; rank < request_.ranks; ++rank) {
    const bool fits = recomputes_ ? add_chosen(boundaries, rank) : add_plain(boundaries, rank);
    if (!fits) return nullptr;
  }
  return &stage_ns_;
}

bool SplitCosts::add_plain(const std::vector<int>& boundaries, int rank) {
  int64_t bytes = 0;
  for (const int stage : stages_of_[at(rank)]) {
    const size_t begin = at(boundaries[at(stage)]), end = at(boundaries[at(stage) + 1]);
    const int64_t time = times_[end] - times_[begin];
    stage_ns_[at(stage)] =
        request_.rank_speed.empty() ? time : time_at_speed(time, request_.rank_speed[at(rank)]);
    bytes += statics_[end] - statics_[begin] +
             (activations_[end] - activations_[begin]) * request_.in_flight[at(stage)];
  }
  return bytes <= budget_of_rank(request_, rank);
}

bool SplitCosts::add_chosen(const std::vector<int>& boundaries, int rank) {
  const StageTimes& times = chosen(boundaries, rank);
  if (!times) return false;
  size_t next = 0;
  for (const int stage : stages_of_[at(rank)]) stage_ns_[at(stage)] = (*times)[next++];
  return true;
}

const SplitCosts::StageTimes& SplitCosts::chosen(const std::vector<int>& boundaries, int rank) {
  key_.assign({rank});
  for (const int stage : stages_of_[at(rank)]) {
    key_.push_back(boundaries[at(stage)]);
    key_.push_back(boundaries[at(stage) + 1]);
  }
  const auto found = kept_.find(key_);
  if (found != kept_.end()) return found->second;
  if (kept_.size() >= kRanksKept) kept_.clear();
  return kept_.emplace(key_, choose(boundaries, rank)).first->second;
}

SplitCosts::StageTimes SplitCosts::choose(const std::vector<int>& boundaries, int rank) const {
  const std::vector<HeldLayer> held = layers_held_by(request_, boundaries, rank);
  bool thinned = false;
  const auto options = choose_options(request_, held, Objective::Time, rank, thinned);
  if (!options) return std::nullopt;
  std::vector<int64_t> of_stage(stage_ns_.size(), 0), times;
  for (size_t i = 0; i < held.size(); ++i) of_stage[at(held[i].stage)] += (*options)[i].time_ns;
  for (const int stage : stages_of_[at(rank)]) {
    const int64_t time = of_stage[at(stage)];
    times.push_back(request_.rank_speed.empty() ? time : time_at_speed(time, request_.rank_speed[at(rank)]));
  }
  return times;
}

}  // namespace penstock::plan
