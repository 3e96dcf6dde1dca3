// What the options of `penstock schedule` ask for, worked out: a verified program, played against its costs.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "client/commands/commands.h"
#include "plan/interop/schedule_report.h"

namespace penstock::client {

// Errors name the option, or the file and the place in it. Searches take up to options.search_seconds.
StatusOr<plan::ScheduleReport> schedule_report(const ScheduleOptions& options);

// Whole bytes with an optional unit, as "80GB" or "512MiB", below 2^60. The error begins with the option's
// name.
StatusOr<int64_t> parse_bytes(const std::string& text, const char* option);

// One for all ranks, or a list by rank: "80GB,40GB". Empty of "".
StatusOr<std::vector<int64_t>> parse_byte_list(const std::string& list, const char* option);

}  // namespace penstock::client
