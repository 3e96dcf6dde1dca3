#include "plan/verification/internal/circle.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::plan::internal {
namespace {

constexpr size_t kRanksShown = 8;

// The ranks of the first circle, from its lowest one; or one rank that waits for nobody who could help.
std::vector<int> find_circle(const std::vector<int>& waits_for) {
  const int ranks = static_cast<int>(waits_for.size());
  std::vector<int> seen_from(waits_for.size(), -1);
  int stopped = -1;
  for (int start = 0; start < ranks; ++start) {
    int rank = start;
    while (waits_for[rank] >= 0 && seen_from[rank] < 0) {
      seen_from[rank] = start;
      stopped = stopped < 0 ? rank : stopped;
      rank = waits_for[rank];
    }
    if (waits_for[rank] < 0 || seen_from[rank] != start) continue;
    std::vector<int> circle;
    for (int member = rank; circle.empty() || member != rank; member = waits_for[member])
      circle.push_back(member);
    std::rotate(circle.begin(), std::min_element(circle.begin(), circle.end()), circle.end());
    return circle;
  }
  return {std::max(stopped, 0)};
}

}  // namespace

Violation describe_circle(const std::vector<int>& waits_for, const std::string& sends,
                          const std::function<Standstill(int rank)>& describe) {
  const std::vector<int> circle = find_circle(waits_for);
  const Standstill first = describe(circle.front());
  std::string text;
  for (size_t i = 0; i < std::min(circle.size(), kRanksShown); ++i) {
    const Standstill stop = describe(circle[i]);
    text += fmt::format("{}rank {} stands before {} at position {} and waits for {}", i == 0 ? "" : "; ",
                        circle[i], stop.action, stop.position, stop.waits_for);
  }
  if (circle.size() > kRanksShown)
    text += fmt::format("; and {} ranks more in the circle", circle.size() - kRanksShown);
  return Violation{"deadlock", RankIndex(circle.front()), first.position, first.action,
                   fmt::format("nobody can go on{}: {}", sends, text)};
}

}  // namespace penstock::plan::internal
