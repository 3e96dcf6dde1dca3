#include "kernels/ops/cpu/packing.h"

#include <algorithm>
#include <cstring>

#include "kernels/ops/cpu/ahead.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/matrix_product.h"
#include "kernels/ops/cpu/transpose.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kBlock = 64;  // columns of a block

template <typename Element>
Element rounded(float value);
template <>
float rounded<float>(float value) {
  return value;
}
template <>
BFloat16 rounded<BFloat16>(float value) {
  return to_bfloat16(value);
}

// A right operand [inner, columns] in the blocked layout.
template <typename Element>
struct Blocked {
  static constexpr int64_t kSideBySide = 4 / sizeof(Element);  // values of `inner`
  static constexpr DataType kType = kSideBySide == 2 ? DataType::BFloat16 : DataType::Float32;

  Blocked(void* memory, int64_t inner)
      : data(static_cast<Element*>(memory)), padded_inner(packed_elements(inner, kBlock, kType) / kBlock) {}

  // The 32 bits that hold (inner, column), and its neighbour in bfloat16.
  Element* at(int64_t inner, int64_t column) const {
    return data + column / kBlock * padded_inner * kBlock + inner / kSideBySide * kBlock * kSideBySide +
           column % kBlock * kSideBySide;
  }
  void put(int64_t inner, int64_t column, Element value) const {
    at(inner, column)[inner % kSideBySide] = value;
  }

  Element* data;
  int64_t padded_inner;
};

// Sixteen 32-bit values of one row, rounded to the element type.
template <typename Element>
PENSTOCK_INLINE inline BitLanes load_rounded(const float* from);
template <>
PENSTOCK_INLINE inline BitLanes load_rounded<float>(const float* from) {
  return load_bits(from);
}
template <>
PENSTOCK_INLINE inline BitLanes load_rounded<BFloat16>(const float* from) {
  BFloat16 pair[2 * kLanes];
  store(pair, load(from));
  store(pair + kLanes, load(from + kLanes));
  return load_bits(pair);
}

template <typename Element>
struct WeightRows {
  const float* rows;
  int64_t first;
  int64_t count;
  int64_t in;

  const float* row(int64_t r) const { return rows + (r - first) * in; }
  int64_t end() const { return first + count; }
};

// inner = in: sixteen rows of the weight are sixteen columns.
template <typename Element>
PENSTOCK_INLINE inline void pack_forward(const WeightRows<Element>& weight, const Blocked<Element>& to) {
  constexpr int64_t kValues = kLanes * Blocked<Element>::kSideBySide;
  for (int64_t r = weight.first; r < weight.end();) {
    const int64_t group_end = std::min(r / kLanes * kLanes + kLanes, weight.end());
    int64_t k = 0;
    if (group_end - r == kLanes) {
      for (; k + kValues <= weight.in; k += kValues) {
        BitLanes block[kLanes];
        for (int64_t i = 0; i < kLanes; ++i) block[i] = load_rounded<Element>(weight.row(r + i) + k);
        transpose(block);
        for (int64_t i = 0; i < kLanes; ++i) {
          store_bits(to.at(k + i * Blocked<Element>::kSideBySide, r), block[i]);
        }
      }
    }
    for (; k < weight.in; ++k) {
      for (int64_t i = r; i < group_end; ++i) to.put(k, i, rounded<Element>(weight.row(i)[k]));
    }
    r = group_end;
  }
}

// inner = out: rows stay rows, and in bfloat16 two of them lie side by side.
PENSTOCK_INLINE inline void pack_backward(const WeightRows<float>& weight, const Blocked<float>& to) {
  for (int64_t r = weight.first; r < weight.end(); ++r) {
    for (int64_t column = 0; column < weight.in; column += kBlock) {
      const int64_t columns = std::min(kBlock, weight.in - column);
      std::memcpy(to.at(r, column), weight.row(r) + column, static_cast<size_t>(columns) * sizeof(float));
    }
  }
}
PENSTOCK_INLINE inline void pack_backward(const WeightRows<BFloat16>& weight, const Blocked<BFloat16>& to) {
  for (int64_t r = weight.first; r < weight.end();) {
    int64_t column = 0;
    const bool pair = r % 2 == 0 && r + 1 < weight.end();
    if (pair) {
      for (; column + kLanes <= weight.in; column += kLanes) {
        const ShortLanes even = narrow(load(weight.row(r) + column));
        const ShortLanes odd = narrow(load(weight.row(r + 1) + column));
        store_bits(to.at(r, column), interleave(even, odd));
      }
    }
    for (; column < weight.in; ++column) {
      to.put(r, column, to_bfloat16(weight.row(r)[column]));
      if (pair) to.put(r + 1, column, to_bfloat16(weight.row(r + 1)[column]));
    }
    r += pair ? 2 : 1;
  }
}

// Without packed products: the weight as it is.
template <typename Element>
PENSTOCK_INLINE inline void round_rows(const WeightRows<Element>& weight, Element* to) {
  const float* from = weight.rows;
  Element* rows = to + weight.first * weight.in;
  for_each_lanes(weight.count * weight.in, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
    lanes.store(rows + i, lanes.load(from + i));
  });
}

template <typename Element>
void pack_weight_rows_as(const float* rows, int64_t row, int64_t count, const PackedWeight& weight) {
  const WeightRows<Element> from{rows, row, count, weight.in};
  vectorised([&]() PENSTOCK_INLINE {
    if (!has_packed_products(weight.type)) return round_rows(from, static_cast<Element*>(weight.data));
    pack_forward(from, Blocked<Element>(weight.forward(), weight.in));
    pack_backward(from, Blocked<Element>(weight.backward(), weight.out));
  });
}

// Rows of a right operand from `row` to its end.
template <typename Element>
void zero_from(const Blocked<Element>& to, int64_t row, int64_t columns) {
  const int64_t rows = to.padded_inner - row;
  for (int64_t c = 0; c < columns && rows > 0; c += kBlock) {
    std::memset(to.at(row, c), 0, static_cast<size_t>(rows * kBlock) * sizeof(Element));
  }
}

// Sixteen columns of one row of float32, or of two rows of bfloat16, whose values come to lie side by side.
// `rows`: how many there are; what is missing is zero.
PENSTOCK_INLINE inline BitLanes load_side_by_side(const float* from, int64_t, int64_t rows) {
  return rows > 0 ? load_bits(from) : BitLanes{};
}
PENSTOCK_INLINE inline BitLanes load_side_by_side(const BFloat16* from, int64_t stride, int64_t rows) {
  if (rows <= 0) return BitLanes{};
  return interleave(load_narrow(from), rows > 1 ? load_narrow(from + stride) : ShortLanes{});
}

template <typename Element>
void transpose_blocks(const Element* from, const ColumnBlock& block, Element* to) {
  constexpr int64_t kSideBySide = Blocked<Element>::kSideBySide;
  constexpr int64_t kTokens = kLanes * kSideBySide;
  const int64_t squares = (block.filled + kTokens - 1) / kTokens * (block.columns / kLanes);
  const Ahead ahead(block.ahead, std::max<int64_t>(squares, 1));
  vectorised([&]() PENSTOCK_INLINE {
    int64_t done = 0;
    for (int64_t t = 0; t < block.filled; t += kTokens) {
      const int64_t tokens = block.tokens - t;
      const auto bytes = static_cast<size_t>(std::min(kTokens, block.filled - t)) * sizeof(Element);
      int64_t c = 0;
      for (; c + kLanes <= block.columns; c += kLanes) {
        BitLanes square[kLanes];
        ahead.bring(done++);
        for (int64_t i = 0; i < kLanes; ++i) {
          square[i] = load_side_by_side(from + (t + i * kSideBySide) * block.stride + c, block.stride,
                                        tokens - i * kSideBySide);
        }
        transpose(square);
        for (int64_t i = 0; i < kLanes; ++i) {
          Element* const row = to + (c + i) * block.filled + t;
          if (bytes == sizeof(BitLanes)) {
            store_bits(row, square[i]);
          } else {
            std::memcpy(row, &square[i], bytes);
          }
        }
      }
      for (; c < block.columns; ++c) {
        for (int64_t i = t; i < std::min(t + kTokens, block.filled); ++i) {
          to[c * block.filled + i] = i < block.tokens ? from[i * block.stride + c] : Element{};
        }
      }
    }
  });
}

}  // namespace

void pack_weight_rows(const float* rows, int64_t row, int64_t count, const PackedWeight& weight) {
  if (weight.type == DataType::BFloat16) return pack_weight_rows_as<BFloat16>(rows, row, count, weight);
  pack_weight_rows_as<float>(rows, row, count, weight);
}

void pack_rows(const float* from, int64_t tokens, int64_t filled, int64_t columns, float* packed) {
  const Blocked<float> to(packed, filled);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t t = 0; t < tokens; ++t) {
      for_each_lanes(columns, [&](const auto& lanes, int64_t c) PENSTOCK_INLINE {
        lanes.store(to.at(t, c), lanes.load(from + t * columns + c));
      });
    }
  });
  zero_from(to, tokens, columns);
}

void pack_rows(const BFloat16* from, int64_t tokens, int64_t filled, int64_t columns, BFloat16* packed) {
  const Blocked<BFloat16> to(packed, filled);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t t = 0; t < tokens; t += 2) {
      const BFloat16* const even = from + t * columns;
      const bool pair = t + 1 < tokens;
      int64_t c = 0;
      for (; c + kLanes <= columns; c += kLanes) {
        store_bits(to.at(t, c),
                   interleave(load_narrow(even + c), pair ? load_narrow(even + columns + c) : ShortLanes{}));
      }
      for (; c < columns; ++c) {
        to.put(t, c, even[c]);
        to.put(t + 1, c, pair ? even[columns + c] : BFloat16{});
      }
    }
  });
  zero_from(to, (tokens + 1) / 2 * 2, columns);
}

void transpose_columns(const float* from, const ColumnBlock& block, float* to) {
  transpose_blocks(from, block, to);
}
void transpose_columns(const BFloat16* from, const ColumnBlock& block, BFloat16* to) {
  transpose_blocks(from, block, to);
}

}  // namespace penstock::kernels::cpu
