#include "plan/partition/internal/front.h"

#include <algorithm>

namespace penstock::plan {
namespace {

constexpr size_t kFrontsKept = 1 << 16;
constexpr size_t kProductMax = 1'024;  // points; beyond, a run is added layer by layer

TimeAndBytes cost_of(const LayerOption& option, int in_flight) {
  return {option.time_ns, option.static_bytes + option.activation_bytes * in_flight};
}

uint64_t key_of(int stage, int begin, int end) {
  return (static_cast<uint64_t>(stage) << 32) | (static_cast<uint64_t>(begin) << 16) |
         static_cast<uint64_t>(end);
}

bool is_before(const TimeAndBytes& a, const TimeAndBytes& b) {
  return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.bytes < b.bytes;
}

// Of points in order: what no faster one beats in bytes.
void keep_sensible(Front& points) {
  size_t kept = 0;
  for (const TimeAndBytes& point : points) {
    if (kept == 0 || point.bytes < points[kept - 1].bytes) points[kept++] = point;
  }
  points.resize(kept);
}

// The ends stay: the fastest, and the one with the fewest bytes.
bool thin_out(Front& points) {
  if (points.size() <= kFrontPointsMax) return false;
  Front fewer;
  for (size_t i = 0; i < points.size(); i += 2) fewer.push_back(points[i]);
  if (points.size() % 2 == 0) fewer.push_back(points.back());
  points = std::move(fewer);
  return true;
}

}  // namespace

Front layer_front(const LayerCost& layer, int in_flight) {
  Front front = {cost_of(layer.keep, in_flight)};
  if (layer.recompute) front.push_back(cost_of(*layer.recompute, in_flight));
  std::sort(front.begin(), front.end(), is_before);
  keep_sensible(front);
  return front;
}

Front sum_of(const Front& first, const Front& second, bool& thinned) {
  const Front& longer = first.size() < second.size() ? second : first;
  const Front& shorter = first.size() < second.size() ? first : second;
  Front sums;
  sums.reserve(longer.size() * shorter.size());
  for (const TimeAndBytes& b : shorter) {
    for (const TimeAndBytes& a : longer) sums.push_back({a.time_ns + b.time_ns, a.bytes + b.bytes});
  }
  const auto second_row = sums.begin() + static_cast<ptrdiff_t>(longer.size());
  if (shorter.size() == 2) {
    std::inplace_merge(sums.begin(), second_row, sums.end(), is_before);
  } else if (shorter.size() > 2) {
    std::sort(sums.begin(), sums.end(), is_before);
  }
  keep_sensible(sums);
  thinned |= thin_out(sums);
  return sums;
}

TimeAndBytes fastest_within(const Front& first, const Front& second, int64_t bytes_max) {
  TimeAndBytes best{-1, 0};
  size_t other = second.size();  // the fastest of `second` that fits beside the point stands at `other`
  for (const TimeAndBytes& point : first) {
    while (other > 0 && point.bytes + second[other - 1].bytes <= bytes_max) --other;
    if (other == second.size()) continue;
    const TimeAndBytes pair{point.time_ns + second[other].time_ns, point.bytes + second[other].bytes};
    const bool better = best.time_ns < 0 || pair.time_ns < best.time_ns ||
                        (pair.time_ns == best.time_ns && pair.bytes < best.bytes);
    if (better) best = pair;
  }
  return best;
}

const Front& FrontTable::of(int stage, int begin, int end) {
  if (kept_.size() >= kFrontsKept) kept_.clear();
  int first = begin;
  auto found = kept_.find(key_of(stage, first, end));
  while (found == kept_.end() && first < end) found = kept_.find(key_of(stage, ++first, end));
  Front front = found == kept_.end() ? Front{{0, 0}} : found->second;
  if (found != kept_.end() && first == begin) return found->second;
  while (first > begin) front = with_layer(front, stage, --first);
  return kept_.insert_or_assign(key_of(stage, begin, end), std::move(front)).first->second;
}

Front FrontTable::with_run(Front before, int stage, int begin, int end) {
  const Front& run = of(stage, begin, end);
  if (before.size() * run.size() <= kProductMax) {
    points_made_ += static_cast<int64_t>(before.size() * run.size());
    return sum_of(before, run, thinned_);
  }
  for (int layer = begin; layer < end; ++layer) before = with_layer(before, stage, layer);
  return before;
}

Front FrontTable::with_layer(const Front& front, int stage, int layer) {
  points_made_ += static_cast<int64_t>(2 * front.size());
  const int in_flight = request_.in_flight[static_cast<size_t>(stage)];
  return sum_of(front, layer_front(request_.layers[static_cast<size_t>(layer)], in_flight), thinned_);
}

}  // namespace penstock::plan
