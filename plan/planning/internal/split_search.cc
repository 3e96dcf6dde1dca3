#include "plan/planning/internal/split_search.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

namespace penstock::plan {
namespace {

int64_t kWorkMax = getenv("WORK") ? atoll(getenv("WORK")) : 30'000'000;
size_t kChainsMax = getenv("CHAINS") ? atoll(getenv("CHAINS")) : 32;
bool kFirst = getenv("FIRST") != nullptr;
constexpr int64_t kAskAfter = 1 << 16;
constexpr Ticks kAny = std::numeric_limits<Ticks>::max();

}  // namespace

SplitSearch::SplitSearch(const PlanningRequest& request, const Playable& playable, SplitPlayer& player)
    : request_(request), player_(player), costs_(playable.partition) {
  split_work_ = 16 * playable.program.stages();
}

std::optional<std::vector<int>> SplitSearch::best_from(std::vector<std::vector<int>> starts) {
  std::vector<Found> found;
  for (std::vector<int>& start : starts) {
    if (const auto makespan = makespan_below(start, kAny)) found.push_back({std::move(start), *makespan});
  }
  if (found.empty()) return std::nullopt;
  const auto is_faster = [](const Found& a, const Found& b) { return a.makespan < b.makespan; };
  std::stable_sort(found.begin(), found.end(), is_faster);
  for (Found& each : found) climb(each);
  return std::move(std::min_element(found.begin(), found.end(), is_faster)->boundaries);
}

// Nothing where the split does not fit, or takes as long as `limit`.
std::optional<Ticks> SplitSearch::makespan_below(const std::vector<int>& boundaries, Ticks limit) {
  ++looked_at_;
  work_ += split_work_;
  const std::vector<int64_t>* stage_ns = costs_.stage_times(boundaries);
  if (stage_ns == nullptr || !player_.set_split(boundaries, *stage_ns).ok()) return std::nullopt;
  if (is_ruled_out(limit)) return std::nullopt;
  ++plays_;
  work_ += player_.replay().actions();
  const Ticks makespan = player_.replay().play();
  keep_chain();
  if (makespan >= limit) return std::nullopt;
  return makespan;
}

bool SplitSearch::is_ruled_out(Ticks limit) {
  if (limit == kAny) return false;
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
  while (!is_spent() && improve(best)) {
  }
}

// A split with one layer handed on from a stage to another one, which shifts the boundaries between them.
bool SplitSearch::improve(Found& best) {
  const std::vector<int> from = best.boundaries;
  std::vector<int> moved = from;
  bool is_better = false;
  for (size_t first = 1; first + 1 < from.size(); ++first) {
    for (const int by : {-1, 1}) {
      for (size_t last = first; last + 1 < from.size() && !is_spent(); ++last) {
        moved[last] += by;
        const bool is_emptied = by < 0 ? moved[first] == moved[first - 1] : moved[last] == moved[last + 1];
        if (is_emptied) continue;
        const auto makespan = makespan_below(moved, best.makespan);
        if (!makespan) continue;
        best = {moved, *makespan};
        is_better = true;
        if (kFirst) return true;
      }
      std::copy(from.begin(), from.end(), moved.begin());
    }
  }
  return is_better;
}

bool SplitSearch::is_spent() {
  if (is_stopped_ || work_ >= kWorkMax) return true;
  if (work_ - asked_at_ < kAskAfter) return false;
  asked_at_ = work_;
  is_stopped_ = request_.keep_going && !request_.keep_going();
  return is_stopped_;
}

}  // namespace penstock::plan
