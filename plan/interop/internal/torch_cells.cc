#include "plan/interop/internal/torch_cells.h"

#include <array>
#include <charconv>

namespace penstock::plan::internal {
namespace {

struct Name {
  TorchKind kind;
  std::string_view text;
};

// In the order of TorchKind.
constexpr std::array kNames = {
    Name{TorchKind::Forward, "F"},
    Name{TorchKind::Backward, "B"},
    Name{TorchKind::InputGradient, "I"},
    Name{TorchKind::WeightGradient, "W"},
    Name{TorchKind::Unshard, "UNSHARD"},
    Name{TorchKind::Reshard, "RESHARD"},
    Name{TorchKind::ReduceGrad, "REDUCE_GRAD"},
    Name{TorchKind::SendForward, "SEND_F"},
    Name{TorchKind::ReceiveForward, "RECV_F"},
    Name{TorchKind::SendBackward, "SEND_B"},
    Name{TorchKind::ReceiveBackward, "RECV_B"},
};

constexpr std::string_view kPairEnd = ")OVERLAP_F_B";

std::string_view name_of(TorchKind kind) {
  return kNames[static_cast<size_t>(kind)].text;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view take_digits(std::string_view& text) {
  size_t count = 0;
  while (count < text.size() && is_digit(text[count])) ++count;
  const std::string_view digits = text.substr(0, count);
  text.remove_prefix(count);
  return digits;
}

std::string_view take_letters(std::string_view& text) {
  size_t count = 0;
  while (count < text.size() && ((text[count] >= 'A' && text[count] <= 'Z') || text[count] == '_')) ++count;
  const std::string_view letters = text.substr(0, count);
  text.remove_prefix(count);
  return letters;
}

StatusOr<int32_t> number(std::string_view digits, const char* what) {
  int32_t value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure == std::errc()) return value;
  return invalid_argument("expected a {} below 2^31", what);
}

StatusOr<TorchKind> kind_named(std::string_view letters) {
  for (const Name& name : kNames) {
    if (name.text == letters) return name.kind;
  }
  if (letters == "BW") {
    return invalid_argument(
        "BW is a letter of older files, where B was the input gradient; now I is the input gradient and B the "
        "full backward: write B for BW, and I for their B");
  }
  return invalid_argument(
      "expected F, B, I, W, UNSHARD, RESHARD, REDUCE_GRAD, SEND_F, RECV_F, SEND_B or RECV_B behind the stage");
}

StatusOr<TorchAction> parse_action(std::string_view text) {
  TorchAction action;
  const std::string_view stage = take_digits(text);
  if (stage.empty()) return invalid_argument("expected STAGE TYPE MICROBATCH such as 2B3, in upper case");
  const std::string_view letters = take_letters(text);
  const std::string_view microbatch = take_digits(text);
  PENSTOCK_ASSIGN_OR_RETURN(action.kind, kind_named(letters));
  if (!text.empty()) return invalid_argument("expected nothing behind the action");
  PENSTOCK_ASSIGN_OR_RETURN(const int32_t stage_number, number(stage, "stage"));
  action.stage = StageIndex(stage_number);

  const bool takes_microbatch = is_compute(action.kind) || is_transfer(action.kind);
  if (takes_microbatch && microbatch.empty())
    return invalid_argument("expected a microbatch behind {}", letters);
  if (!takes_microbatch && !microbatch.empty())
    return invalid_argument("expected no microbatch behind {}", letters);
  if (!takes_microbatch) return action;
  PENSTOCK_ASSIGN_OR_RETURN(const int32_t microbatch_number, number(microbatch, "microbatch"));
  action.microbatch = MicrobatchIndex(microbatch_number);
  return action;
}

StatusOr<TorchCell> parse_pair(std::string_view text) {
  if (!text.ends_with(kPairEnd)) return invalid_argument("expected a pair to end in {}", kPairEnd);
  text.remove_prefix(1);
  text.remove_suffix(kPairEnd.size());
  const size_t middle = text.find(';');
  if (middle == std::string_view::npos || text.find(';', middle + 1) != std::string_view::npos) {
    return invalid_argument("expected two actions in a pair, with one ';' between them");
  }
  TorchCell cell;
  PENSTOCK_ASSIGN_OR_RETURN(cell.first, parse_action(text.substr(0, middle)));
  PENSTOCK_ASSIGN_OR_RETURN(cell.second, parse_action(text.substr(middle + 1)));
  if (is_compute(cell.first->kind) && is_compute(cell.second->kind)) return cell;
  return invalid_argument("expected F, B, I or W in a pair");
}

}  // namespace

std::string to_string(const TorchAction& action) {
  std::string text = fmt::format("{}{}", action.stage.value, name_of(action.kind));
  if (action.microbatch.is_set()) text += fmt::format("{}", action.microbatch.value);
  return text;
}

std::string to_string(const TorchCell& cell) {
  if (!cell.first) return "";
  if (!cell.second) return to_string(*cell.first);
  return fmt::format("({};{}{}", to_string(*cell.first), to_string(*cell.second), kPairEnd);
}

Work work_of(const TorchAction& action) {
  return {action.stage, static_cast<ActionKind>(action.kind), action.microbatch};
}

TorchKind torch_kind(ActionKind kind) {
  return static_cast<TorchKind>(kind);
}

StatusOr<TorchCell> parse_torch_cell(std::string_view text) {
  if (text.empty()) return TorchCell{};
  if (text.front() == '(') return parse_pair(text);
  TorchCell cell;
  PENSTOCK_ASSIGN_OR_RETURN(cell.first, parse_action(text));
  return cell;
}

// work_of and torch_kind rely on it.
static_assert(static_cast<int>(TorchKind::Backward) == static_cast<int>(ActionKind::Backward) &&
              static_cast<int>(TorchKind::InputGradient) == static_cast<int>(ActionKind::InputGradient) &&
              static_cast<int>(TorchKind::WeightGradient) == static_cast<int>(ActionKind::WeightGradient));

}  // namespace penstock::plan::internal
