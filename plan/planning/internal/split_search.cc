#include "plan/planning/internal/split_search.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

namespace penstock::plan {
namespace {

constexpr int64_t kWorkMax = 30'000'000;  // some 40 ms
constexpr int64_t kWorkOfStage = 16;      // of a split that is not played
constexpr int64_t kAskAfterWork = 100'000;
constexpr size_t kChainsMax = 32;
constexpr int kShakesMax = 60;
constexpr int kLeastMoves = 2, kMostMoves = 4;  // of one shake
constexpr Ticks kAny = std::numeric_limits<Ticks>::max();

// Hands a layer from the stage before boundary `first` to the one behind `last` (by -1), or back; false where the stage that
// gives has only one.
bool hand_layer_on(std::vector<int>& boundaries, size_t first, size_t last, int by) {
  const bool has_one =
      by < 0 ? boundaries[first] - boundaries[first - 1] == 1 : boundaries[last + 1] - boundaries[last] == 1;
  if (has_one) return false;
  for (size_t boundary = first; boundary <= last; ++boundary) boundaries[boundary] += by;
  return true;
}

}  // namespace

SplitSearch::SplitSearch(const PlanningRequest& request, const Playable& playable, SplitPlayer& player)
    : request_(request),
      player_(player),
      costs_(playable.partition),
      split_work_(kWorkOfStage * playable.program.stages()) {}

std::optional<std::vector<int>> SplitSearch::best_from(const std::vector<std::vector<int>>& starts) {
  std::vector<Found> found;
  for (const std::vector<int>& start : starts) {
    if (auto played = faster_than(kAny, start)) found.push_back(*std::move(played));
  }
  if (found.empty()) return std::nullopt;
  const auto is_faster = [](const Found& a, const Found& b) { return a.makespan < b.makespan; };
  std::stable_sort(found.begin(), found.end(), is_faster);
  for (Found& each : found) climb(each);
  Found& best = *std::min_element(found.begin(), found.end(), is_faster);
  shake(best);
  return std::move(best.boundaries);
}

std::optional<SplitSearch::Found> SplitSearch::faster_than(Ticks limit, const std::vector<int>& boundaries) {
  work_ += split_work_;
  const std::vector<int64_t>* stage_ns = costs_.stage_times(boundaries);
  if (stage_ns == nullptr || !player_.set_split(boundaries, *stage_ns).ok()) return std::nullopt;
  if (is_ruled_out(limit)) return std::nullopt;
  work_ += player_.replay().actions();
  const Ticks makespan = player_.replay().play();
  keep_chain();
  if (makespan >= limit) return std::nullopt;
  return Found{boundaries, makespan};
}

bool SplitSearch::is_ruled_out(Ticks limit) {
  for (auto chain = chains_.begin(); chain != chains_.end(); ++chain) {
    if (player_.replay().length_of(*chain) < limit) continue;
    std::rotate(chains_.begin(), chain, chain + 1);
    return true;
  }
  return false;
}

void SplitSearch::keep_chain() {
  if (chains_.size() == kChainsMax) chains_.pop_back();
  chains_.insert(chains_.begin(), player_.replay().slowest_chain());
}

void SplitSearch::climb(Found& best) {
  while (improve(best)) {
  }
}

// Takes the best split with one layer handed on, from any stage to any other one.
bool SplitSearch::improve(Found& best) {
  const std::vector<int> from = best.boundaries;
  bool is_better = false;
  for (size_t first = 1; first + 1 < from.size(); ++first) {
    for (size_t last = first; last + 1 < from.size(); ++last) {
      for (const int by : {-1, 1}) {
        if (is_spent()) return is_better;
        std::vector<int> moved = from;
        if (!hand_layer_on(moved, first, last, by)) continue;
        auto faster = faster_than(best.makespan, moved);
        if (!faster) continue;
        best = *std::move(faster);
        is_better = true;
      }
    }
  }
  return is_better;
}

// Out of a split that no single layer makes faster: hands some on at random, and climbs from there.
void SplitSearch::shake(Found& best) {
  std::minstd_rand random(1);
  const size_t inner = best.boundaries.size() - 2;
  const auto boundary = [&] { return 1 + random() % inner; };
  for (int shaken = 0; shaken < kShakesMax && inner > 0 && !is_spent(); ++shaken) {
    std::vector<int> start = best.boundaries;
    const int moves = kLeastMoves + shaken % (kMostMoves - kLeastMoves + 1);
    for (int move = 0; move < moves; ++move) {
      const auto [first, last] = std::minmax({boundary(), boundary()});
      hand_layer_on(start, first, last, random() % 2 == 0 ? -1 : 1);
    }
    auto found = faster_than(kAny, start);
    if (!found) continue;
    climb(*found);
    if (found->makespan < best.makespan) best = *std::move(found);
  }
}

bool SplitSearch::is_spent() {
  if (is_stopped_ || work_ >= kWorkMax) return true;
  if (work_ - asked_at_ < kAskAfterWork) return false;
  asked_at_ = work_;
  is_stopped_ = request_.keep_going && !request_.keep_going();
  return is_stopped_;
}

}  // namespace penstock::plan
