// One piece of a rank's work: a stage's forward, backward, input gradient or weight gradient for one
// microbatch, or an overlapped pair of two of them. Written `0F1`, `2B3`, `0I1`, `0W1`, `O(4F7;3B2)`.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"

namespace penstock::plan {

// Backward is the fused one, input and weight gradient together; a split backward uses the other two.
enum class ActionKind : uint8_t { Forward, Backward, InputGradient, WeightGradient };

char letter(ActionKind kind);  // F B I W

inline bool starts_backward(ActionKind kind) {
  return kind == ActionKind::Backward || kind == ActionKind::InputGradient;
}

// Whether the forward's activations may go and the stage's weight gradient is complete after it.
inline bool ends_backward(ActionKind kind) {
  return kind == ActionKind::Backward || kind == ActionKind::WeightGradient;
}

// Half a backward.
inline bool is_half_backward(ActionKind kind) {
  return kind == ActionKind::InputGradient || kind == ActionKind::WeightGradient;
}

struct Work {
  StageIndex stage;
  ActionKind kind = ActionKind::Forward;
  MicrobatchIndex microbatch;

  auto operator<=>(const Work&) const = default;
};

struct Action {
  Work work;
  std::optional<Work> overlapped;  // the second half of a pair; both run at once where the device can

  auto operator<=>(const Action&) const = default;
};

inline Action single(StageIndex stage, ActionKind kind, MicrobatchIndex microbatch) {
  return Action{Work{stage, kind, microbatch}, std::nullopt};
}

std::string to_string(const Work& work);
std::string to_string(const Action& action);

// The whole text must match the grammar; InvalidArgument otherwise, with the text and what was expected.
StatusOr<Action> parse_action(std::string_view text);

}  // namespace penstock::plan
