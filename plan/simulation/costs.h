// Decimal costs as a user writes them, as exact integer ticks, and back in the user's unit.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

// How many ticks make one unit: a power of ten, fine enough that
// every number it was made for is a whole count.
class TickScale {
 public:
  TickScale() = default;  // one tick is one unit

  // Numbers are 0 or more, as "3", "18.522" or "5e-1", with at most 9 decimals, and below 10^9.
  // InvalidArgument quotes the number that is not.
  static StatusOr<TickScale> for_numbers(std::span<const std::string> texts);

  // InvalidArgument also when the number is finer than this scale.
  StatusOr<Ticks> to_ticks(std::string_view text) const;

  // The shortest decimal: "57", "228.5". Exact for any ticks.
  std::string to_text(Ticks ticks) const;
  double to_number(Ticks ticks) const {
    return static_cast<double>(ticks) / static_cast<double>(ticks_per_unit());
  }

  Ticks ticks_per_unit() const;

 private:
  int decimals_ = 0;
};

// Costs in ticks, and what a tick is.
struct ScaledCosts {
  TickScale scale;
  SimulationCosts costs;
};

// The same costs for every stage.
struct UniformCosts {
  TickScale scale;
  StageCosts stage;
  Ticks overlapped_pair = 0;
  Ticks latency = 0;

  SimulationCosts for_stages(int stages) const;
};

// `costs`: "F,I,W" or "F,I,W,PAIR", where PAIR is what an overlapped pair takes (default F+I+W).
// InvalidArgument says which part is wrong.
StatusOr<UniformCosts> parse_uniform_costs(std::string_view costs, std::string_view latency = "0");

}  // namespace penstock::plan
