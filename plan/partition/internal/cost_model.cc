#include "plan/partition/internal/cost_model.h"

#include <algorithm>
#include <limits>

namespace penstock::plan {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

template <typename Value>
std::vector<int64_t> sums_of(const std::vector<LayerCost>& layers, const Value& value) {
  std::vector<int64_t> sums = {0};
  sums.reserve(layers.size() + 1);
  for (size_t layer = 0; layer < layers.size(); ++layer) sums.push_back(sums.back() + value(layer));
  return sums;
}

int64_t fewest_bytes(const LayerCost& layer, int in_flight) {
  return layer_front(layer, in_flight).back().bytes;
}

}  // namespace

int64_t time_at_speed(int64_t time_ns, int64_t speed) {
  if (speed == kSpeedUnit) return time_ns;
  return static_cast<int64_t>((__int128{time_ns} * kSpeedUnit + speed / 2) / speed);
}

CostModel::CostModel(const PartitionRequest& request, Objective objective)
    : request_(request),
      objective_(objective),
      budgets_(at(request.ranks), kMost),
      shortfalls_(at(request.ranks), 0),
      fronts_(request) {
  const std::vector<LayerCost>& layers = request.layers;
  recomputes_ =
      std::any_of(layers.begin(), layers.end(), [](const LayerCost& l) { return l.recompute.has_value(); });
  times_ = sums_of(layers, [&](size_t l) { return layers[l].keep.time_ns; });
  activations_ = sums_of(layers, [&](size_t l) { return layers[l].keep.activation_bytes; });
  statics_ = sums_of(layers, [&](size_t l) { return layers[l].keep.static_bytes; });

  const int least_in_flight = *std::min_element(request.in_flight.begin(), request.in_flight.end());
  floors_ = sums_of(layers, [&](size_t l) {
    if (objective == Objective::Bytes) return fewest_bytes(layers[l], least_in_flight);
    return recomputes_ ? layer_front(layers[l], 1).front().time_ns : layers[l].keep.time_ns;
  });
  for (size_t l = 0; l < layers.size(); ++l)
    largest_floor_ = std::max(largest_floor_, floors_[l + 1] - floors_[l]);

  set_budgets();
  speeds_from_.assign(at(request.ranks) + 1, 0);
  shortfalls_from_.assign(at(request.ranks) + 1, 0);
  for (int rank = request.ranks - 1; rank >= 0; --rank) {
    speeds_from_[at(rank)] =
        speeds_from_[at(rank) + 1] + (objective == Objective::Time ? speed(rank) : kSpeedUnit);
    shortfalls_from_[at(rank)] = shortfalls_from_[at(rank) + 1] + shortfalls_[at(rank)];
  }
  if (!request.current_rank.empty()) {
    for (int rank = 0; rank < request.ranks; ++rank) {
      moved_.push_back(sums_of(layers, [&](size_t l) {
        return request.current_rank[l] == rank ? 0 : layers[l].keep.static_bytes + 1;
      }));
    }
  }
  cost_max_ = layers_cost_max() + *std::max_element(shortfalls_.begin(), shortfalls_.end());
}

void CostModel::set_budgets() {
  if (objective_ == Objective::Time) {
    for (int rank = 0; rank < request_.ranks; ++rank) budgets_[at(rank)] = budget_of_rank(request_, rank);
    return;
  }
  // One that all layers fit into is as good as any.
  const int64_t enough = layers_cost_max();
  int64_t largest = std::numeric_limits<int64_t>::min();
  for (int rank = 0; rank < request_.ranks; ++rank) {
    shortfalls_[at(rank)] = std::min(budget_of_rank(request_, rank), enough);
    largest = std::max(largest, shortfalls_[at(rank)]);
  }
  for (int64_t& budget : shortfalls_) budget = largest - budget;
}

int64_t CostModel::layers_cost_max() const {
  int64_t sum = 0;
  const int most_in_flight = *std::max_element(request_.in_flight.begin(), request_.in_flight.end());
  for (const LayerCost& layer : request_.layers) {
    const Front front = layer_front(layer, most_in_flight);
    sum += objective_ == Objective::Time ? front.back().time_ns : front.front().bytes;
  }
  if (objective_ == Objective::Bytes || request_.rank_speed.empty()) return sum;
  return time_at_speed(sum, *std::min_element(request_.rank_speed.begin(), request_.rank_speed.end()));
}

int64_t CostModel::speed(int rank) const {
  return request_.rank_speed.empty() ? kSpeedUnit : request_.rank_speed[at(rank)];
}

int64_t CostModel::on_rank(int rank, int64_t time_ns) const {
  return request_.rank_speed.empty() ? time_ns : time_at_speed(time_ns, request_.rank_speed[at(rank)]);
}

std::optional<TimeAndBytes> CostModel::plain(int rank, std::span<const Run> runs) const {
  TimeAndBytes sum;
  for (const Run& run : runs) {
    sum.time_ns += times_[at(run.end)] - times_[at(run.begin)];
    sum.bytes +=
        statics_[at(run.end)] - statics_[at(run.begin)] +
        (activations_[at(run.end)] - activations_[at(run.begin)]) * request_.in_flight[at(run.stage)];
  }
  if (sum.bytes > budgets_[at(rank)]) return std::nullopt;
  return sum;
}

std::optional<TimeAndBytes> CostModel::chosen(int rank, std::span<const Run> runs) {
  Front before = {{0, 0}};
  for (const Run& run : runs.first(runs.size() - 1)) {
    before = fronts_.with_run(std::move(before), run.stage, run.begin, run.end);
  }
  const Front& last = fronts_.of(runs.back().stage, runs.back().begin, runs.back().end);
  if (objective_ == Objective::Bytes) {
    return TimeAndBytes{before.back().time_ns + last.back().time_ns, before.back().bytes + last.back().bytes};
  }
  points_ += static_cast<int64_t>(before.size() + last.size());
  const TimeAndBytes best = fastest_within(before, last, budgets_[at(rank)]);
  if (best.time_ns < 0) return std::nullopt;
  return best;
}

bool CostModel::is_stopped() {
  constexpr int64_t kWorkMax = 50'000'000, kAskAfterWork = 1'000'000;
  const int64_t work = this->work();
  if (is_stopped_ || work - asked_at_ < kAskAfterWork) return is_stopped_;
  asked_at_ = work;
  is_stopped_ = work > kWorkMax || (request_.keep_going && !request_.keep_going());
  return is_stopped_;
}

std::optional<RankCost> CostModel::rank_cost(int rank, std::span<const Run> runs) {
  ++evaluations_;
  const std::optional<TimeAndBytes> sum = recomputes_ ? chosen(rank, runs) : plain(rank, runs);
  if (!sum) return std::nullopt;
  const int64_t time = on_rank(rank, sum->time_ns);
  const int64_t cost = objective_ == Objective::Time ? time : sum->bytes + shortfalls_[at(rank)];
  return RankCost{cost, time, sum->bytes};
}

bool CostModel::can_hold(int rank, int64_t floor, int64_t limit) const {
  // Each rank may round half a nanosecond down.
  const Wide room = (Wide{limit} + 1) * speeds_from_[at(rank)] - shortfalls_from_[at(rank)] * kSpeedUnit;
  return Wide{floor} * kSpeedUnit <= room;
}

int64_t CostModel::moved(int rank, const Run& run) const {
  if (moved_.empty()) return 0;
  const std::vector<int64_t>& sums = moved_[at(rank)];
  return sums[at(run.end)] - sums[at(run.begin)];
}

int64_t CostModel::ideal_cost() const {
  const Wide all = (Wide{floors_.back()} + shortfalls_from_[0]) * kSpeedUnit;
  return static_cast<int64_t>((all + speeds_from_[0] - 1) / speeds_from_[0]);
}

int64_t CostModel::least_cost() const {
  int64_t fastest = kSpeedUnit;
  if (objective_ == Objective::Time && !request_.rank_speed.empty()) {
    fastest = *std::max_element(request_.rank_speed.begin(), request_.rank_speed.end());
  }
  return std::max(ideal_cost(), time_at_speed(largest_floor_, fastest));
}

}  // namespace penstock::plan
