#include "plan/render/human.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <span>

namespace penstock::plan {
namespace {

// Three significant digits: 1.50, 23.4, 950; past all units 1.23e+45.
std::string three_digits(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:.2e}", value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

// Divides until the value has at most three digits before the point, or the units are used up.
std::string scaled(double value, double base, std::span<const char* const> units) {
  size_t unit = 0;
  while (unit + 1 < units.size() && std::abs(value) >= 999.5) {
    value /= base;
    ++unit;
  }
  return (unit == 0 ? fmt::format("{:.0f}", value) : three_digits(value)) + units[unit];
}

}  // namespace

std::string human_duration(double seconds) {
  if (!(seconds > 0)) return "0s";
  constexpr double kLongest = 1e9 * 86400;
  seconds = std::min(seconds, kLongest);
  if (seconds < 0.00995) return fmt::format("{:.1f}ms", seconds * 1000);
  if (seconds < 0.9995) return fmt::format("{:.0f}ms", seconds * 1000);
  if (seconds < 9.95) {
    const auto tenths = std::llround(seconds * 10);
    return tenths % 10 == 0 ? fmt::format("{}s", tenths / 10)
                            : fmt::format("{}.{}s", tenths / 10, tenths % 10);
  }
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  if (whole < 86400) return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
  return fmt::format("{}d{:02}h", whole / 86400, whole / 3600 % 24);
}

std::string human_bytes(int64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  return scaled(static_cast<double>(bytes), 1024, kUnits);
}

std::string human_count(double count) {
  constexpr std::array kUnits = {"", "k", "M", "G", "T", "P"};
  return std::isfinite(count) ? scaled(count, 1000, kUnits) : "-";
}

std::string counted(int64_t count, std::string_view noun) {
  if (count == 1) return fmt::format("1 {}", noun);
  return fmt::format("{} {}{}", count, noun, noun.ends_with("ch") ? "es" : "s");
}

std::string bounded_decimal(double value, int digits) {
  constexpr double kLongest = 1e9;
  return std::abs(value) < kLongest ? fmt::format("{:.{}f}", value, digits)
                                    : fmt::format("{:.{}e}", value, digits);
}

}  // namespace penstock::plan
