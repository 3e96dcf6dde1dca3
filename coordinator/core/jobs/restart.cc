#include "coordinator/core/jobs/restart.h"

#include <algorithm>

#include "base/status.h"

namespace penstock::coordinator {
namespace {

constexpr Duration kFirstDelay = 1s;
constexpr Duration kLongestDelay = 30s;

// None before the first attempt that follows a barren one: most failures are of one machine.
Duration delay_after(int64_t barren_attempts) {
  if (barren_attempts < 2) return Duration{};
  const int64_t doublings = std::min<int64_t>(barren_attempts - 2, 5);
  return std::min(kFirstDelay * (int64_t{1} << doublings), kLongestDelay);
}

}  // namespace

RestartVerdict judge_restart(const plan::RestartSpec& spec, int64_t restarts, int64_t barren_attempts) {
  if (spec.max == 0) return {};
  if (barren_attempts >= spec.no_progress_limit) {
    return {.exit_code = ExitCode::NoProgress,
            .why = fmt::format(
                "; {} attempts behind one another brought no new checkpoint: restart.no_progress_limit",
                barren_attempts)};
  }
  if (restarts >= spec.max)
    return {.why = fmt::format("; restarted {} times already: restart.max", restarts)};
  return {.restarts = true, .delay = delay_after(barren_attempts)};
}

}  // namespace penstock::coordinator
