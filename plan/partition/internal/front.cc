#include "plan/partition/internal/front.h"

#include <algorithm>

namespace penstock::plan {
namespace {

constexpr size_t kFrontsKept = 1 << 16;

TimeAndBytes cost_of(const LayerOption& option, int in_flight) {
  return {option.time_ns, option.static_bytes + option.activation_bytes * in_flight};
}

uint64_t key_of(int stage, int begin, int end) {
  return (static_cast<uint64_t>(stage) << 32) | (static_cast<uint64_t>(begin) << 16) |
         static_cast<uint64_t>(end);
}

// Keeps what no faster point beats in bytes.
void keep_sensible(Front& points) {
  std::sort(points.begin(), points.end(), [](const TimeAndBytes& a, const TimeAndBytes& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.bytes < b.bytes;
  });
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
  keep_sensible(front);
  return front;
}

Front sum_of(const Front& first, const Front& second, bool& thinned) {
  Front sums;
  sums.reserve(first.size() * second.size());
  for (const TimeAndBytes& a : first) {
    for (const TimeAndBytes& b : second) sums.push_back({a.time_ns + b.time_ns, a.bytes + b.bytes});
  }
  if (sums.size() > 1) keep_sensible(sums);
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
  const int in_flight = request_.in_flight[static_cast<size_t>(stage)];
  int first = begin;
  auto found = kept_.find(key_of(stage, first, end));
  while (found == kept_.end() && first < end) found = kept_.find(key_of(stage, ++first, end));
  Front front = found == kept_.end() ? Front{{0, 0}} : found->second;
  if (found != kept_.end() && first == begin) return found->second;
  while (first > begin) {
    --first;
    front = sum_of(layer_front(request_.layers[static_cast<size_t>(first)], in_flight), front, thinned_);
  }
  return kept_.insert_or_assign(key_of(stage, begin, end), std::move(front)).first->second;
}

}  // namespace penstock::plan
