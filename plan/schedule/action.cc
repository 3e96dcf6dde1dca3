#include "plan/schedule/action.h"

#include <charconv>

namespace penstock::plan {
namespace {

constexpr size_t kMaximumDigits = 9;  // fits an int32

bool take(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<int32_t> take_number(std::string_view& text) {
  size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  if (digits == 0 || digits > kMaximumDigits) return std::nullopt;
  int32_t value = 0;
  std::from_chars(text.data(), text.data() + digits, value);
  text.remove_prefix(digits);
  return value;
}

std::optional<ActionKind> take_kind(std::string_view& text) {
  if (take(text, "F")) return ActionKind::Forward;
  if (take(text, "B")) return ActionKind::Backward;
  if (take(text, "I")) return ActionKind::InputGradient;
  if (take(text, "W")) return ActionKind::WeightGradient;
  return std::nullopt;
}

std::optional<Work> take_work(std::string_view& text) {
  const auto stage = take_number(text);
  if (!stage) return std::nullopt;
  const auto kind = take_kind(text);
  if (!kind) return std::nullopt;
  const auto microbatch = take_number(text);
  if (!microbatch) return std::nullopt;
  return Work{StageIndex(*stage), *kind, MicrobatchIndex(*microbatch)};
}

std::optional<Action> take_action(std::string_view& text) {
  if (!take(text, "O(")) {
    const auto work = take_work(text);
    return work ? std::optional(Action{*work, std::nullopt}) : std::nullopt;
  }
  const auto first = take_work(text);
  if (!first || !take(text, ";")) return std::nullopt;
  const auto second = take_work(text);
  if (!second || !take(text, ")")) return std::nullopt;
  return Action{*first, *second};
}

}  // namespace

char letter(ActionKind kind) {
  switch (kind) {
    case ActionKind::Forward:
      return 'F';
    case ActionKind::Backward:
      return 'B';
    case ActionKind::InputGradient:
      return 'I';
    case ActionKind::WeightGradient:
      return 'W';
  }
  return '?';  // a value that came over a wire
}

std::string to_string(const Work& work) {
  return fmt::format("{}{}{}", work.stage.value, letter(work.kind), work.microbatch.value);
}

std::string to_string(const Action& action) {
  if (!action.overlapped) return to_string(action.work);
  return fmt::format("O({};{})", to_string(action.work), to_string(*action.overlapped));
}

StatusOr<Action> parse_action(std::string_view text) {
  std::string_view rest = text;
  const auto action = take_action(rest);
  if (action && rest.empty()) return *action;
  constexpr size_t kShown = 40;
  return invalid_argument(
      "action '{}{}': expected STAGE, one of F B I W, MICROBATCH, as 0F1, or a pair as O(4F7;3B2)",
      text.substr(0, kShown), text.size() > kShown ? "..." : "");
}

}  // namespace penstock::plan
