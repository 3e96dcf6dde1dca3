// What the experts' products share: how the rows of all experts are cut into pieces, each of one expert.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/experts/contract.h"

namespace penstock::kernels::cpu {

inline int64_t rounded_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// Rows [first, first + rows) of one expert.
struct ExpertPiece {
  int64_t expert = 0;
  int64_t first = 0;
  int64_t rows = 0;
};

// The rows of every expert in pieces of `size`, the last one of each shorter; in the order of the rows. They stay valid
// until the next call. most_rows: of all experts, in any call.
inline std::span<const ExpertPiece> expert_pieces(Context& context, const TensorView& offsets, int64_t size,
                                                  int64_t most_rows) {
  const int64_t experts = offsets.elements() - 1;
  const int64_t most_pieces = most_rows / size + experts;
  constexpr int64_t kFloats = sizeof(ExpertPiece) / sizeof(float);
  auto* const pieces =
      reinterpret_cast<ExpertPiece*>(context.reserve_shared(most_pieces * kFloats, Shared::ExpertPieces));
  int64_t count = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t first = offsets.i32()[e];
    const Partition rows{offsets.i32()[e + 1] - first, size};
    for (int64_t piece = 0; piece < rows.pieces(); ++piece) {
      PENSTOCK_CHECK(count < most_pieces, "the experts' offsets pass {} rows", most_rows);
      std::construct_at(&pieces[count++], ExpertPiece{e, first + rows.begin(piece), rows.length(piece)});
    }
  }
  return {pieces, static_cast<size_t>(count)};
}

}  // namespace penstock::kernels::cpu
