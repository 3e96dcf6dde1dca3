// The text of `penstock schedule`: a drawing, the figures of the whole, and a table of the ranks. Figures
// that papers give one name are named apart.
#pragma once

#include <cstdint>
#include <string>

#include "plan/interop/schedule_report.h"
#include "plan/render/timeline.h"

namespace penstock::client {

std::string schedule_text(const plan::ScheduleReport& report, const plan::TimelineStyle& style);

// The figures in one line: "makespan 33, span 33; idle/total 27.3%, idle/useful 37.5%".
std::string summary_line(const plan::ScheduleReport& report);

// In decimal units, as memory budgets are given: "80GB", "1.5TB".
std::string byte_text(int64_t bytes);

}  // namespace penstock::client
