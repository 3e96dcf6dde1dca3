// A job that runs and makes no progress says so; it is not failed for that.
#include <algorithm>
#include <vector>

#include "coordinator/core/internal/turn.h"

namespace penstock::coordinator {
namespace {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The rank that is furthest behind; of several the first.
RankIndex slowest(const Attempt& attempt) {
  RankIndex found;
  int64_t least = 0;
  for (size_t r = 0; r < attempt.ranks.size(); ++r) {
    if (attempt.ranks[r].finished) continue;
    const RankIndex rank(static_cast<int64_t>(r));
    const int64_t next = attempt.window.next_of(rank);
    if (found.is_set() && next >= least) continue;
    found = rank;
    least = next;
  }
  return found;
}

std::string what_is_missing(const Job& job, RankIndex rank) {
  const Attempt& attempt = *job.attempt;
  const std::string who =
      fmt::format("rank {} on {}", rank.value, attempt.ranks[static_cast<size_t>(rank.value)].worker);
  if (job.status.step >= job.definition.steps) return who + " has not sent its result";
  const int64_t next = attempt.window.next_of(rank);
  return next == 0 ? who + " has not reported a step"
                   : fmt::format("{} last reported step {}", who, next - 1);
}

}  // namespace

Duration stall_limit(const std::deque<double>& recent_step_seconds, const Options& options) {
  const double median = median_of({recent_step_seconds.begin(), recent_step_seconds.end()});
  const double seconds = std::min(1e9, median * options.stalled_steps);
  return std::max(options.stalled_after,
                  std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

void check_stall(Turn& turn, Job& job) {
  Attempt& attempt = *job.attempt;
  const bool runs = job.status.state == JobState::Running || job.status.state == JobState::Draining;
  if (!runs || attempt.suspicion) return;
  const Duration silent = turn.now.time - attempt.progressed;
  if (silent < stall_limit(job.recent_step_seconds, turn.state.options)) return;
  const RankIndex rank = slowest(attempt);
  if (!rank.is_set()) return;
  const std::string missing = what_is_missing(job, rank);
  if (attempt.stalled_by == missing) return;
  attempt.stalled_by = missing;
  note(turn, job, fmt::format("no step for {:.0f} s; {}", to_seconds(silent), missing));
}

void progress_made(Turn& turn, Job& job) {
  Attempt& attempt = *job.attempt;
  const Duration silent = turn.now.time - attempt.progressed;
  attempt.progressed = turn.now.time;
  if (attempt.stalled_by.empty()) return;
  attempt.stalled_by.clear();
  note(turn, job, fmt::format("steps go on after {:.0f} s without one", to_seconds(silent)));
}

}  // namespace penstock::coordinator
