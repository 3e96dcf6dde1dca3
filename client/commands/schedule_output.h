// What `penstock schedule` prints, in each of its formats.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/interop/schedule_report.h"

namespace penstock::client {

// "text", "json", "svg", "perfetto", "torch-csv", "torch-csv-comms".
std::vector<std::string> schedule_formats();

// `width`: columns of the terminal, for text. InvalidArgument says what the format cannot express.
StatusOr<std::string> schedule_output(const plan::ScheduleReport& report, const std::string& format,
                                      int width);

}  // namespace penstock::client
