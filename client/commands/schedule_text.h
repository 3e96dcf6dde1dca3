// The text of `penstock schedule`: a drawing, the figures of the whole, and a table of the ranks.
#pragma once

#include <string>

#include "plan/interop/schedule_report.h"
#include "plan/render/timeline.h"

namespace penstock::client {

std::string schedule_text(const plan::ScheduleReport& report, const plan::TimelineStyle& style);

}  // namespace penstock::client
