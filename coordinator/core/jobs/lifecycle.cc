#include "coordinator/core/jobs/lifecycle.h"

#include <array>

namespace penstock::coordinator {
namespace {

using enum JobState;

constexpr uint16_t set_of(std::initializer_list<JobState> states) {
  uint16_t bits = 0;
  for (JobState state : states) bits |= static_cast<uint16_t>(1u << static_cast<int>(state));
  return bits;
}

constexpr std::array<uint16_t, kJobStates> kTargets = {
    /* Queued     */ set_of({Placing, Paused, Failed, Cancelled}),
    /* Placing    */ set_of({Queued, Preparing, Paused, Failed, Cancelled}),
    /* Preparing  */ set_of({Running, Recovering, Draining, Failed, Cancelled}),
    /* Running    */ set_of({Succeeded, Recovering, Draining, Failed, Cancelled}),
    /* Recovering */ set_of({Queued, Paused, Failed, Cancelled}),
    /* Draining   */ set_of({Paused, Succeeded, Recovering, Failed, Cancelled}),
    /* Paused     */ set_of({Queued, Failed, Cancelled}),
    /* Succeeded  */ 0,
    /* Failed     */ 0,
    /* Cancelled  */ 0,
};

constexpr std::array<std::string_view, kJobStates> kNames = {
    "queued",   "placing", "preparing", "running", "recovering",
    "draining", "paused",  "succeeded", "failed",  "cancelled"};

}  // namespace

bool can_move(JobState source, JobState target) {
  return (kTargets[static_cast<size_t>(source)] & set_of({target})) != 0;
}

std::string_view to_string(JobState state) {
  return kNames[static_cast<size_t>(state)];
}

std::optional<JobState> parse_job_state(std::string_view text) {
  for (int i = 0; i < kJobStates; ++i) {
    if (kNames[static_cast<size_t>(i)] == text) return static_cast<JobState>(i);
  }
  return std::nullopt;
}

}  // namespace penstock::coordinator
