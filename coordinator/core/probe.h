// What the core saw, for whoever counts: one value an event. Exporters live elsewhere.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "coordinator/core/views.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

struct StepCommitted {
  std::string job{};
  int64_t step = 0;  // committed steps, this one included
  std::optional<double> loss{};
  std::optional<double> validation_loss{};  // of the pass that followed the step
  int64_t tokens = 0;
  double seconds = 0;                 // wall time of the slowest rank
  std::vector<StepReport> reports{};  // [rank]
};
struct LeaseExpired {
  std::string worker{};
};
// A report, publication or registration that fencing, order or shape refused.
enum class Refusal : uint8_t { Stale, Duplicate, OutOfWindow, Malformed };
inline constexpr int kRefusals = 4;
const char* to_string(Refusal refusal);
struct ReportRefused {
  Refusal refusal = Refusal::Stale;
};
struct JobRetired {
  std::string job{};
};

using Observation = std::variant<StepCommitted, LeaseExpired, ReportRefused, JobRetired>;

// How many of each there are now.
struct Census {
  std::array<int64_t, kJobStates> jobs{};  // by JobState
  int64_t workers_free = 0;                // no rank on any device
  int64_t workers_assigned = 0;
  int64_t workers_draining = 0;  // or drained: they take no work
  int64_t workers_lost = 0;
  int64_t devices_free = 0;  // of workers that take work
  int64_t devices_busy = 0;  // a rank runs there, or is being stopped
  bool operator==(const Census&) const = default;
};

}  // namespace penstock::coordinator
