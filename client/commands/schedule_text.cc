#include "client/commands/schedule_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "plan/render/human.h"
#include "plan/render/table.h"

namespace penstock::client {
namespace {

using plan::ScheduleReport;
using plan::Table;

std::string percent(double fraction) {
  return fmt::format("{:.1f}%", 100 * fraction);
}

template <typename Numbers>
std::string listed(const Numbers& numbers) {
  std::string text;
  for (const auto& number : numbers) text += fmt::format("{}{}", text.empty() ? "" : ",", number);
  return text;
}

std::string heading(const ScheduleReport& report) {
  const plan::ComputeProgram& program = report.program;
  const bool aligned = report.simulation.timeline == plan::Timeline::Aligned;
  using plan::counted;
  std::string text =
      fmt::format("{}: {}, {}, {}", program.schedule, counted(program.ranks, "rank"),
                  counted(program.stages(), "stage"), counted(program.microbatches, "microbatch"));
  if (program.updates > 1) text += fmt::format(" in each of {}", counted(program.updates, "update"));
  text += fmt::format("; {} timeline\n", aligned ? "aligned" : "earliest");
  return program.note.empty() ? text : text + "note: " + program.note + "\n";
}

std::string search_text(const plan::SearchResult& search, const plan::TickScale& scale) {
  const plan::SearchReport& found = search.report;
  if (found.optimal)
    return fmt::format("span {} is optimal: {}", scale.to_text(found.max_stage_span), found.bound_reason);
  return fmt::format("span {}; none is below {} ({}): at most {:.2f}% from optimal",
                     scale.to_text(found.max_stage_span), scale.to_text(found.bound), found.bound_reason,
                     found.gap_percent);
}

std::string figures(const ScheduleReport& report) {
  const plan::Simulation& simulation = report.simulation;
  const auto time = [&](plan::Ticks ticks) { return report.scale.to_text(ticks); };
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    text += fmt::format("{:<16}{}\n", name, value);
  };
  add("makespan", time(simulation.makespan) + " from the first action to the last, over all ranks");
  add("span",
      time(simulation.max_stage_span) + " of the longest rank, from its own first action to its own last");
  add("idle/total", fmt::format("{} of ranks x makespan ({})", percent(simulation.bubble_fraction),
                                time(simulation.idle_total)));
  add("idle/useful", fmt::format("{} of the time that ranks compute", percent(simulation.bubble_to_busy)));
  add("span bubble", fmt::format("{}: (span - work) / span, the zero-bubble papers' rate",
                                 percent(simulation.stage_bubble_rate)));
  if (report.search) add("search", search_text(*report.search, report.scale));
  add("slots", fmt::format("{}, of which {} of {} are empty, at F=1, B=2", report.slots, report.empty_slots,
                           report.slots * report.program.ranks));
  add("transfers",
      fmt::format("{} forward, {} backward", simulation.transfers_forward, simulation.transfers_backward));
  add("hand-offs", fmt::format("{} local, {} hidden, {} exposed", simulation.handoffs.local,
                               simulation.handoffs.hidden, simulation.handoffs.exposed));
  add("payload slots", listed(report.payload_slots) + " by stage");
  add("loss", fmt::format("on rank {}", report.loss_rank.value));
  return text;
}

std::string rank_table(const ScheduleReport& report, int ranks_max) {
  constexpr auto kRight = Table::Align::Right;
  std::vector<Table::Column> columns = {{"RANK", kRight},      {"BUSY", kRight},       {"WARM-UP", kRight},
                                        {"COOL-DOWN", kRight}, {"DEPENDENCY", kRight}, {"TRANSFER", kRight},
                                        {"HELD TO W", kRight}, {"HELD TO I", kRight}};
  if (report.memory) columns.insert(columns.end(), {{"PEAK BYTES", kRight}, {"FITS"}});
  Table table(std::move(columns));
  const auto time = [&](plan::Ticks ticks) { return report.scale.to_text(ticks); };
  const size_t rows = std::min(report.simulation.ranks.size(), static_cast<size_t>(ranks_max));
  for (size_t rank = 0; rank < rows; ++rank) {
    const plan::RankTimeline& line = report.simulation.ranks[rank];
    std::vector<std::string> cells = {
        fmt::format("{}", rank),
        time(line.busy),
        time(line.idle_warm_up),
        time(line.idle_cool_down),
        time(line.idle_dependency),
        time(line.idle_transfer),
        fmt::format("{}", report.peak_activations[rank]),
        fmt::format("{}", report.peak_activations_released_at_input_gradient[rank])};
    if (report.memory) {
      const plan::MemoryRow& row = report.memory->rows[rank];
      const bool has_budget = !report.memory_assumptions->budget_bytes.empty();
      cells.push_back(byte_text(row.bytes));
      cells.emplace_back(!has_budget ? "" : row.fits ? "yes" : "no");
    }
    table.add_row(std::move(cells));
  }
  return table.text();
}

// What the columns mean, in the words of those who blur them.
std::string legend(const ScheduleReport& report) {
  std::string text =
      "\nIdle time by cause; and the most forwards held at once, until B or W ends (held to W), or until B or I ends\n"
      "(held to I). One forward is that of one stage";
  const int stages = report.program.stages_per_rank;
  text += stages > 1 ? fmt::format(": a copy of the whole rank is {} of them.\n", stages) : ".\n";
  if (report.memory) {
    text += fmt::format(
        "Peak bytes: what is held all the time, and each forward held to W. A budget of {} fits all ranks.\n",
        byte_text(report.memory->smallest_budget));
  }
  return text;
}

}  // namespace

std::string byte_text(int64_t bytes) {
  constexpr std::array<std::pair<int64_t, const char*>, 4> kUnits = {
      {{1'000'000'000'000, "TB"}, {1'000'000'000, "GB"}, {1'000'000, "MB"}, {1'000, "KB"}}};
  for (const auto& [size, name] : kUnits) {
    if (bytes >= size)
      return fmt::format("{:.4g}{}", static_cast<double>(bytes) / static_cast<double>(size), name);
  }
  return fmt::format("{}B", bytes);
}

std::string summary_line(const ScheduleReport& report) {
  const plan::Simulation& simulation = report.simulation;
  return fmt::format("makespan {}, longest rank's span {}; idle/total {}, idle/useful {}",
                     report.scale.to_text(simulation.makespan),
                     report.scale.to_text(simulation.max_stage_span), percent(simulation.bubble_fraction),
                     percent(simulation.bubble_to_busy));
}

std::string schedule_text(const ScheduleReport& report, const plan::TimelineStyle& style) {
  return heading(report) + "\n" + plan::timeline_text(report.simulation, style) + "\n" + figures(report) +
         legend(report) + rank_table(report, style.ranks_max);
}

}  // namespace penstock::client
