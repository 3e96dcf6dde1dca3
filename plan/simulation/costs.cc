#include "plan/simulation/costs.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "base/text.h"

namespace penstock::plan {
namespace {

constexpr int kMaximumDecimals = 9;
constexpr int kMaximumWholeDigits = 9;

// digits x 10^-decimals, without trailing zeros after the point; decimals may be negative.
struct Decimal {
  std::string digits;
  int decimals = 0;
};

std::string take_digits(std::string_view& text) {
  const size_t end = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string digits(text.substr(0, end));
  text.remove_prefix(end);
  return digits;
}

std::optional<int> take_exponent(std::string_view& text) {
  if (text.empty()) return 0;
  if (text.front() != 'e' && text.front() != 'E') return std::nullopt;
  text.remove_prefix(1);
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  int exponent = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), exponent);
  if (code != std::errc() || std::abs(exponent) > 2 * kMaximumWholeDigits) return std::nullopt;
  text.remove_prefix(end - text.data());
  return exponent;
}

StatusOr<Decimal> parse_decimal(std::string_view text) {
  constexpr size_t kLongest = 64;
  const auto refuse = [&] {
    return invalid_argument("'{}': expected a number of 0 or more, below 10^{} and with at most {} decimals",
                            text.substr(0, kLongest), kMaximumWholeDigits, kMaximumDecimals);
  };
  if (text.size() > kLongest) return refuse();
  std::string_view rest = trim(text);
  const std::string whole = take_digits(rest);
  std::string fraction;
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    fraction = take_digits(rest);
  }
  const auto exponent = take_exponent(rest);
  if ((whole.empty() && fraction.empty()) || !exponent || !rest.empty()) return refuse();

  Decimal decimal{whole + fraction, static_cast<int>(fraction.size()) - *exponent};
  decimal.digits.erase(0, std::min(decimal.digits.find_first_not_of('0'), decimal.digits.size()));
  while (!decimal.digits.empty() && decimal.digits.back() == '0') {
    decimal.digits.pop_back();
    --decimal.decimals;
  }
  if (decimal.digits.empty()) return Decimal{};
  const int whole_digits = static_cast<int>(decimal.digits.size()) - decimal.decimals;
  if (decimal.decimals > kMaximumDecimals || whole_digits > kMaximumWholeDigits) return refuse();
  return decimal;
}

}  // namespace

StatusOr<TickScale> TickScale::for_numbers(std::span<const std::string> texts) {
  TickScale scale;
  for (const std::string& text : texts) {
    PENSTOCK_ASSIGN_OR_RETURN(const Decimal decimal, parse_decimal(text));
    scale.decimals_ = std::max(scale.decimals_, decimal.decimals);
  }
  return scale;
}

StatusOr<Ticks> TickScale::to_ticks(std::string_view text) const {
  PENSTOCK_ASSIGN_OR_RETURN(const Decimal decimal, parse_decimal(text));
  if (decimal.decimals > decimals_) {
    return invalid_argument("'{}': expected at most {} decimals, as the other numbers", text, decimals_);
  }
  // At most 9 whole digits and 9 decimals: fits.
  Ticks ticks = 0;
  for (const char digit : decimal.digits) ticks = ticks * 10 + (digit - '0');
  for (int zeros = decimal.decimals; zeros < decimals_; ++zeros) ticks *= 10;
  return ticks;
}

std::string TickScale::to_text(Ticks ticks) const {
  const Ticks unit = ticks_per_unit();
  std::string fraction = fmt::format("{:0{}}", std::abs(ticks % unit), decimals_);
  if (decimals_ == 0) fraction.clear();
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
  return fmt::format("{}{}{}{}", ticks < 0 ? "-" : "", std::abs(ticks / unit), fraction.empty() ? "" : ".",
                     fraction);
}

Ticks TickScale::ticks_per_unit() const {
  Ticks unit = 1;
  for (int i = 0; i < decimals_; ++i) unit *= 10;
  return unit;
}

SimulationCosts UniformCosts::for_stages(int stages) const {
  SimulationCosts costs = uniform_costs(stages, stage);
  costs.overlapped_pair = overlapped_pair;
  costs.latency = latency;
  return costs;
}

StatusOr<UniformCosts> parse_uniform_costs(std::string_view costs, std::string_view latency) {
  std::vector<std::string> numbers = split_on(costs, ',');
  if (numbers.size() != 3 && numbers.size() != 4) {
    return invalid_argument("costs '{}': expected F,I,W or F,I,W,PAIR, found {} numbers", costs.substr(0, 80),
                            numbers.size());
  }
  const bool has_pair = numbers.size() == 4;
  numbers.emplace_back(latency);
  StatusOr<TickScale> scale = TickScale::for_numbers(numbers);
  if (!scale.ok()) return with_context(scale.status(), "costs");
  std::vector<Ticks> ticks;
  for (const std::string& number : numbers) {
    PENSTOCK_ASSIGN_OR_RETURN(ticks.emplace_back(), scale->to_ticks(number));
  }
  return UniformCosts{*scale, StageCosts{ticks[0], ticks[1], ticks[2]}, has_pair ? ticks[3] : 0,
                      ticks.back()};
}

}  // namespace penstock::plan
