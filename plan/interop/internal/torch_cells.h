// The cells of a PyTorch schedule CSV: their grammar, matched to the last character.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"
#include "plan/schedule/action.h"

namespace penstock::plan::internal {

enum class TorchKind : uint8_t {
  Forward,
  Backward,
  InputGradient,
  WeightGradient,
  Unshard,
  Reshard,
  ReduceGrad,
  SendForward,
  ReceiveForward,
  SendBackward,
  ReceiveBackward,
};

inline bool is_compute(TorchKind kind) {
  return kind <= TorchKind::WeightGradient;
}
inline bool is_transfer(TorchKind kind) {
  return kind >= TorchKind::SendForward;
}

struct TorchAction {
  StageIndex stage;
  TorchKind kind = TorchKind::Forward;
  MicrobatchIndex microbatch;  // unset for Unshard, Reshard and ReduceGrad
};

struct TorchCell {
  std::optional<TorchAction> first;   // none: an empty cell, a bubble
  std::optional<TorchAction> second;  // of an overlapped pair
};

std::string to_string(const TorchAction& action);
std::string to_string(const TorchCell& cell);

// The action as Penstock's own; the kind is one of compute.
Work work_of(const TorchAction& action);
TorchKind torch_kind(ActionKind kind);

// A cell without quotes and blanks around it. InvalidArgument says what was expected, without the cell's
// text.
StatusOr<TorchCell> parse_torch_cell(std::string_view text);

}  // namespace penstock::plan::internal
