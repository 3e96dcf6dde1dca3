#include "client/commands/schedule_output.h"

#include <algorithm>

#include "client/commands/schedule_text.h"
#include "plan/interop/schedule_json.h"
#include "plan/interop/torch_csv.h"
#include "plan/render/human.h"
#include "plan/render/perfetto.h"
#include "plan/render/svg.h"

namespace penstock::client {
namespace {

// How many forwards fit under a budget that is one for all ranks.
void add_budget(const plan::ScheduleReport& report, plan::SvgStyle& style) {
  if (!report.memory_assumptions) return;
  const auto& [bytes, fixed, budget] = *report.memory_assumptions;
  if (budget.size() != 1 || fixed.size() != 1 || bytes.size() != 1) return;
  if (bytes[0] == 0 || budget[0] <= fixed[0]) return;
  style.held_budget = static_cast<double>(budget[0] - fixed[0]) / static_cast<double>(bytes[0]);
  style.held_budget_name = fmt::format("budget {}: {:.1f} forwards", byte_text(budget[0]), style.held_budget);
}

std::string svg(const plan::ScheduleReport& report) {
  plan::SvgStyle style;
  style.scale = report.scale;
  style.subtitle = summary_line(report);
  add_budget(report, style);
  return plan::timeline_svg(report.program, report.simulation, style);
}

StatusOr<std::string> trace(const plan::ScheduleReport& report) {
  plan::TraceStyle style;
  style.scale = report.scale;
  if (report.memory_assumptions) {
    style.bytes_per_activation = report.memory_assumptions->bytes_per_activation;
    style.static_bytes = report.memory_assumptions->static_bytes;
  }
  return plan::timeline_trace(report.program, report.simulation, style);
}

}  // namespace

std::vector<std::string> schedule_formats() {
  return {"text", "json", "svg", "perfetto", "torch-csv", "torch-csv-comms"};
}

StatusOr<std::string> schedule_output(const plan::ScheduleReport& report, const std::string& format,
                                      int width) {
  if (format == "text") return schedule_text(report, {.width = width});
  if (format == "json") return plan::schedule_to_json(report);
  if (format == "svg") return svg(report);
  if (format == "perfetto") return trace(report);
  if (format == "torch-csv")
    return plan::program_to_torch_csv(report.program, plan::TorchFormat::ComputeOnly);
  if (format == "torch-csv-comms")
    return plan::program_to_torch_csv(report.program, plan::TorchFormat::ComputeComms);
  return invalid_argument(
      "-o/--output: expected one of text, json, svg, perfetto, torch-csv, torch-csv-comms, found {}",
      format.substr(0, 40));
}

}  // namespace penstock::client
