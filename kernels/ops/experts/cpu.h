// What the experts' products share: how the rows of all experts are cut into pieces, each of one expert.
#pragma once

#include <algorithm>
#include <cstring>

#include "kernels/ops/cpu/matrix_product.h"
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
  int64_t filled = 0;         // rows of its products: the others are zeros
  int64_t filled_before = 0;  // of all pieces before it
};

// The rows of every expert in pieces of `size`, each filled up to a multiple of `multiple`.
class ExpertPieces {
 public:
  ExpertPieces(const TensorView& offsets, int64_t size, int64_t multiple)
      : offsets_(offsets.i32()), experts_(offsets.elements() - 1), size_(size), multiple_(multiple) {}

  int64_t count() const {
    int64_t pieces = 0;
    for (int64_t e = 0; e < experts_; ++e) pieces += rows_of(e).pieces();
    return pieces;
  }
  ExpertPiece operator[](int64_t index) const {
    for (int64_t e = 0; e < experts_; ++e) {
      const Partition rows = rows_of(e);
      if (index < rows.pieces()) return piece(e, index, filled_before(e));
      index -= rows.pieces();
    }
    PENSTOCK_CHECK(false, "a piece past the last row");
    return {};
  }
  // Filled rows of the experts before this one.
  int64_t filled_before(int64_t expert) const {
    int64_t filled = 0;
    for (int64_t e = 0; e < expert; ++e) filled += rounded_up(rows_of(e).total, multiple_);
    return filled;
  }
  Partition rows_of(int64_t expert) const { return {offsets_[expert + 1] - offsets_[expert], size_}; }
  // Of one expert, whose pieces begin behind `filled_before` filled rows.
  ExpertPiece piece(int64_t expert, int64_t index, int64_t filled_before) const {
    const Partition rows = rows_of(expert);
    return {.expert = expert,
            .first = offsets_[expert] + rows.begin(index),
            .rows = rows.length(index),
            .filled = rounded_up(rows.length(index), multiple_),
            .filled_before = filled_before + rows.begin(index)};
  }

 private:
  const int32_t* offsets_;
  int64_t experts_;
  int64_t size_;
  int64_t multiple_;
};

// Columns [column, column + width) of the piece's rows into `to` [filled, width], zeros behind them. Rows of `from` stand
// `stride` apart.
template <typename Element>
void fill_up(const ExpertPiece& piece, const Element* from, int64_t stride, int64_t width, Element* to) {
  const auto bytes = static_cast<size_t>(width) * sizeof(Element);
  for (int64_t r = 0; r < piece.rows; ++r) {
    std::memcpy(to + r * width, from + (piece.first + r) * stride, bytes);
  }
  std::memset(to + piece.rows * width, 0, static_cast<size_t>(piece.filled - piece.rows) * bytes);
}

}  // namespace penstock::kernels::cpu
