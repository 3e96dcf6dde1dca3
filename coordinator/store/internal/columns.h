// The columns of wide tables, in the order in which values are bound and read.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

namespace penstock::coordinator {

inline constexpr std::string_view kJobColumns =
    "name, request_id, principal, spec_yaml, schedule, sequence, submitted_unix_ms, steps, "
    "tokens_per_step, ranks, stages, microbatches, state, reason, by, since_unix_ms, attempt, "
    "started_unix_ms, step, has_loss, loss, tokens_per_second, step_seconds, weights_digest, "
    "exit_code, durable_step, restarts, barren_attempts, checkpoints, sums_since, started_from, "
    "first_step, file_before, splits_undone, submitted_yaml";

inline constexpr std::string_view kStageColumns =
    "job, stage, rank, worker, layers, forward_ms, backward_ms, wait_ms, memory_peak_bytes, "
    "memory_predicted_bytes, activation_slots, activation_slots_peak, busy_fraction, payload_slots, "
    "payload_slots_peak";

// "INSERT INTO stages(job, stage) VALUES(?, ?)"
inline std::string insert_into(std::string_view table, std::string_view columns) {
  std::string places = "?";
  for (auto more = std::count(columns.begin(), columns.end(), ','); more > 0; --more) places += ", ?";
  return fmt::format("INSERT INTO {}({}) VALUES({})", table, columns, places);
}

}  // namespace penstock::coordinator
