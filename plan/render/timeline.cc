#include "plan/render/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>

namespace penstock::plan {
namespace {

// The grid of a drawing: every start and end lies on a multiple of `unit` from `origin`.
struct Grid {
  Ticks origin = 0;
  Ticks unit = 1;
  Ticks units = 0;

  Ticks column(Ticks time) const { return (time - origin) / unit; }
};

Grid grid_of(const Simulation& simulation) {
  Grid grid;
  grid.origin = std::numeric_limits<Ticks>::max();
  Ticks last = std::numeric_limits<Ticks>::min();
  for (const RankTimeline& rank : simulation.ranks) {
    for (const TimedAction& timed : rank.actions) {
      grid.origin = std::min(grid.origin, timed.start);
      last = std::max(last, timed.end);
    }
  }
  if (last < grid.origin) return {};
  Ticks unit = 0;
  for (const RankTimeline& rank : simulation.ranks) {
    for (const TimedAction& timed : rank.actions) {
      unit = std::gcd(std::gcd(unit, timed.start - grid.origin), timed.end - grid.origin);
    }
  }
  grid.unit = std::max<Ticks>(unit, 1);
  grid.units = grid.column(last);
  return grid;
}

// Columns that a unit needs so that every label fits into its cell, the bar on its left included.
Ticks cell_width(const Simulation& simulation, const Grid& grid) {
  Ticks width = 1;
  for (const RankTimeline& rank : simulation.ranks) {
    for (const TimedAction& timed : rank.actions) {
      const Ticks units = std::max<Ticks>(grid.column(timed.end) - grid.column(timed.start), 1);
      const auto needed = static_cast<Ticks>(to_string(timed.action).size()) + 1;
      width = std::max(width, (needed + units - 1) / units);
    }
  }
  return width;
}

std::string labelled_row(const RankTimeline& rank, const Grid& grid, Ticks cell) {
  std::string row(static_cast<size_t>(grid.units * cell + 1), ' ');
  for (const TimedAction& timed : rank.actions) {
    const auto start = static_cast<size_t>(grid.column(timed.start) * cell);
    const std::string label = to_string(timed.action);
    row[start] = '|';
    row[static_cast<size_t>(grid.column(timed.end) * cell)] = '|';
    row.replace(start + 1, label.size(), label);
  }
  return row;
}

// Units that a letter must stand for so that the whole fits into `room` columns without losing an action; 1
// when even the shortest action would be lost, and the drawing must be cut instead.
Ticks units_per_letter(const Simulation& simulation, const Grid& grid, Ticks room) {
  Ticks shortest = grid.units;
  for (const RankTimeline& rank : simulation.ranks) {
    for (const TimedAction& timed : rank.actions) {
      shortest = std::min(shortest, grid.column(timed.end) - grid.column(timed.start));
    }
  }
  const Ticks needed = (grid.units + room - 1) / room;
  return needed <= shortest ? std::max<Ticks>(needed, 1) : 1;
}

StageIndex first_stage(const RankTimeline& rank) {
  StageIndex first = rank.actions.empty() ? StageIndex() : rank.actions.front().action.work.stage;
  for (const TimedAction& timed : rank.actions) first = std::min(first, timed.action.work.stage);
  return first;
}

bool has_later_stages(const RankTimeline& rank) {
  const StageIndex first = first_stage(rank);
  return std::any_of(rank.actions.begin(), rank.actions.end(),
                     [&](const TimedAction& timed) { return timed.action.work.stage != first; });
}

// Without the case of the letters, the stages of a rank would look alike.
char letter_of(const Action& action, StageIndex first) {
  if (action.overlapped) return 'O';  // of two stages
  const char kind = letter(action.work.kind);
  return action.work.stage == first ? kind
                                    : static_cast<char>(std::tolower(static_cast<unsigned char>(kind)));
}

// A letter shows what runs in the middle of its time.
std::string letter_row(const RankTimeline& rank, const Grid& grid, Ticks letter_units, Ticks letters) {
  std::string row(static_cast<size_t>(letters), '.');
  const auto first_middle_from = [&](Ticks time) {
    const Ticks shifted = std::max<Ticks>(grid.column(time) - letter_units / 2, 0);
    return std::min((shifted + letter_units - 1) / letter_units, letters);
  };
  const StageIndex first = first_stage(rank);
  for (const TimedAction& timed : rank.actions) {
    const auto start = static_cast<size_t>(first_middle_from(timed.start));
    const auto end = static_cast<size_t>(first_middle_from(timed.end));
    row.replace(start, end - start, end - start, letter_of(timed.action, first));
  }
  return row;
}

std::string without_blanks_at_end(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

}  // namespace

std::string timeline_text(const Simulation& simulation, const TimelineStyle& style) {
  const Grid grid = grid_of(simulation);
  if (grid.units == 0) return "(no action)\n";

  const int ranks = static_cast<int>(simulation.ranks.size());
  const int rows = std::min(ranks, style.ranks_max);
  const int digits = static_cast<int>(fmt::formatted_size("{}", rows - 1));
  const Ticks room = std::max(style.width - digits - 6, 8);  // after "rank N "

  const Ticks cell = cell_width(simulation, grid);
  const bool labelled = grid.units <= (room - 1) / cell;
  const Ticks letter_units = units_per_letter(simulation, grid, room);
  const Ticks letters = std::min((grid.units + letter_units - 1) / letter_units, room);
  std::string text;
  for (int r = 0; r < rows; ++r) {
    const RankTimeline& rank = simulation.ranks[static_cast<size_t>(r)];
    const std::string row =
        labelled ? labelled_row(rank, grid, cell) : letter_row(rank, grid, letter_units, letters);
    text += without_blanks_at_end(fmt::format("rank {:>{}} {}", r, digits, row)) + "\n";
  }
  if (!labelled && letters * letter_units < grid.units) {
    text +=
        fmt::format("(cut after {} of {} units of time; -o json lists every action)\n", letters, grid.units);
  } else if (!labelled && letter_units > 1) {
    text += fmt::format("(a letter {} units of time; -o json lists every action)\n", letter_units);
  } else if (!labelled) {
    text += fmt::format("(a letter a unit of time; {} columns would show every action by name)\n",
                        grid.units * cell + 1 + digits + 6);
  }
  if (!labelled && std::any_of(simulation.ranks.begin(), simulation.ranks.end(), has_later_stages)) {
    text += "(lower case: stages of a rank after its first)\n";
  }
  if (rows == ranks - 1) text += fmt::format("(rank {} left out)\n", rows);
  if (rows < ranks - 1) text += fmt::format("(ranks {} to {} left out)\n", rows, ranks - 1);
  return text;
}

}  // namespace penstock::plan
