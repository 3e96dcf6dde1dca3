// Checks of the shapes that an operation was called with; a mismatch is a programmer's mistake and stops the
// process.
#pragma once

#include "base/check.h"
#include "kernels/tensor/tensor.h"

namespace penstock::kernels {

inline void expect_matrix(const TensorView& view, int64_t rows, int64_t columns, const char* name,
                          DataType type = DataType::Float32) {
  PENSTOCK_CHECK(view.rank() == 2 && view.size(0) == rows && view.size(1) == columns && view.type() == type,
                 "{} must be [{}, {}] of type {}; it has rank {}, {} elements, type {}", name, rows, columns,
                 static_cast<int>(type), view.rank(), view.elements(), static_cast<int>(view.type()));
  PENSTOCK_CHECK(view.dense(), "{} has rows {} elements apart; {} expected", name, view.row_stride(),
                 columns);
}
// The same of a matrix that may be some columns of a wider one.
inline void expect_columns(const TensorView& view, int64_t rows, int64_t columns, const char* name,
                           DataType type) {
  PENSTOCK_CHECK(view.rank() == 2 && view.size(0) == rows && view.size(1) == columns && view.type() == type,
                 "{} must be [{}, {}] of type {}; it has rank {}, {} elements, type {}", name, rows, columns,
                 static_cast<int>(type), view.rank(), view.elements(), static_cast<int>(view.type()));
}

inline void expect_elements(const TensorView& view, int64_t elements, const char* name,
                            DataType type = DataType::Float32) {
  PENSTOCK_CHECK(view.elements() == elements && view.type() == type,
                 "{} must have {} elements of type {}; it has {} of type {}", name, elements,
                 static_cast<int>(type), view.elements(), static_cast<int>(view.type()));
  PENSTOCK_CHECK(view.dense(), "{} must be dense", name);
}

}  // namespace penstock::kernels
