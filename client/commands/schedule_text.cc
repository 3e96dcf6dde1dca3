#include "client/commands/schedule_text.h"

#include "plan/render/human.h"
#include "plan/render/table.h"

namespace penstock::client {
namespace {

using plan::ScheduleReport;
using plan::Table;

std::string percent(double fraction) {
  return fmt::format("{:.1f}%", 100 * fraction);
}

std::string heading(const ScheduleReport& report) {
  const plan::ComputeProgram& program = report.program;
  const bool aligned = report.simulation.timeline == plan::Timeline::Aligned;
  using plan::counted;
  return fmt::format("{}: {}, {}, {}; {} timeline\n", program.schedule, counted(program.ranks, "rank"),
                     counted(program.stages(), "stage"), counted(program.microbatches, "microbatch"),
                     aligned ? "aligned" : "earliest");
}

std::string figures(const ScheduleReport& report) {
  const plan::Simulation& simulation = report.simulation;
  const auto time = [&](plan::Ticks ticks) { return report.scale.to_text(ticks); };
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, value);
  };
  add("makespan",
      fmt::format("{} (longest rank {})", time(simulation.makespan), time(simulation.max_stage_span)));
  add("bubble", fmt::format("{} of all time is idle ({})", percent(simulation.bubble_fraction),
                            time(simulation.idle_total)));
  add("slots", fmt::format("{}, of which {} of {} are empty, at F=1, B=2", report.slots, report.empty_slots,
                           report.slots * report.program.ranks));
  add("transfers",
      fmt::format("{} forward, {} backward", simulation.transfers_forward, simulation.transfers_backward));
  add("hand-offs", fmt::format("{} local, {} hidden, {} exposed", simulation.handoffs.local,
                               simulation.handoffs.hidden, simulation.handoffs.exposed));
  std::string slots;
  for (const int count : report.payload_slots) slots += fmt::format("{}{}", slots.empty() ? "" : ",", count);
  add("payload slots", slots + " by stage");
  add("loss", fmt::format("on rank {}", report.loss_rank.value));
  return text;
}

std::string rank_table(const ScheduleReport& report, int ranks_max) {
  constexpr auto kRight = Table::Align::Right;
  Table table({{"RANK", kRight},
               {"BUSY", kRight},
               {"WARM-UP", kRight},
               {"COOL-DOWN", kRight},
               {"DEPENDENCY", kRight},
               {"TRANSFER", kRight},
               {"PEAK", kRight}});
  const auto time = [&](plan::Ticks ticks) { return report.scale.to_text(ticks); };
  const size_t rows = std::min(report.simulation.ranks.size(), static_cast<size_t>(ranks_max));
  for (size_t rank = 0; rank < rows; ++rank) {
    const plan::RankTimeline& line = report.simulation.ranks[rank];
    table.add_row({fmt::format("{}", rank), time(line.busy), time(line.idle_warm_up),
                   time(line.idle_cool_down), time(line.idle_dependency), time(line.idle_transfer),
                   fmt::format("{}", report.peak_activations[rank])});
  }
  return table.text();
}

}  // namespace

std::string schedule_text(const ScheduleReport& report, const plan::TimelineStyle& style) {
  return heading(report) + "\n" + plan::timeline_text(report.simulation, style) + "\n" + figures(report) +
         "\nIdle time by cause, and most forwards held at once:\n" + rank_table(report, style.ranks_max);
}

}  // namespace penstock::client
