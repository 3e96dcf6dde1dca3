#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/ops/cpu/ahead.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/packing.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/linear/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTokens = 128;
constexpr int64_t kFeatures = 128;
constexpr int64_t kTokensOfSum = 512;  // of one product of the weight gradient

// The products of a partition's rows: all pieces but the last have one shape.
struct PieceProducts {
  PieceProducts(Context& context, const Partition& partition, ProductShape shape) {
    if (partition.total == 0) return;
    shape.rows = partition.length(0);
    whole = &context.product(shape);
    shape.rows = partition.length(partition.pieces() - 1);
    last = &context.product(shape);
    pieces = partition.pieces();
  }
  MatrixProduct& operator[](int64_t piece) const { return piece + 1 == pieces ? *last : *whole; }

  MatrixProduct* whole = nullptr;
  MatrixProduct* last = nullptr;
  int64_t pieces = 0;
};

Operand right_operand(DataType type, Operand without_packing) {
  return has_packed_products(type) ? Operand::Packed : without_packing;
}

const char* at(const TensorView& rows, int64_t row) {
  return static_cast<const char*>(rows.data()) + row * rows.row_stride() * size_bytes(rows.type());
}

// x [T, in] as the right operands of the weight gradient's products, one for each 512 tokens.
class TokenOperands {
 public:
  TokenOperands(Context& context, const TensorView& x)
      : x_(x), in_(x.size(1)), packed_(has_packed_products(x.type())), sums_{x.size(0), kTokensOfSum} {
    if (!packed_) return;
    stride_ = packed_elements(std::min(sums_.size, sums_.total), in_, x.type()) * size_bytes(x.type());
    memory_ =
        reinterpret_cast<char*>(context.reserve_shared(sums_.pieces() * stride_ / 4, Shared::PackedRows));
    with_element(x.type(), [&](auto element) {
      using Element = decltype(element);
      context.parallel_for(sums_.pieces(), [&](int64_t sum) {
        pack_rows(data<Element>(x) + sums_.begin(sum) * in_, sums_.length(sum), sums_.length(sum), in_,
                  reinterpret_cast<Element*>(memory_ + sum * stride_));
      });
    });
  }

  const Partition& sums() const { return sums_; }
  Operand kind() const { return packed_ ? Operand::Packed : Operand::Plain; }
  const void* of(int64_t sum) const { return packed_ ? memory_ + sum * stride_ : at(x_, sums_.begin(sum)); }

 private:
  TensorView x_;
  int64_t in_;
  bool packed_;
  Partition sums_;
  int64_t stride_ = 0;
  char* memory_ = nullptr;
};

// One piece of output features and the place of its gradient.
struct FeaturePiece {
  int64_t column = 0;  // of the output gradient
  int64_t features = 0;
  float* gradient = nullptr;  // [features, in]
};

// Pieces of 128 features, cut anew for every weight.
FeaturePiece feature_piece(std::span<const TensorView> gradients, int64_t index) {
  int64_t column = 0;
  for (const TensorView& gradient : gradients) {
    const Partition pieces{gradient.size(0), kFeatures};
    if (index < pieces.pieces()) {
      const int64_t first = pieces.begin(index);
      return {column + first, pieces.length(index), gradient.f32() + first * gradient.size(1)};
    }
    index -= pieces.pieces();
    column += gradient.size(0);
  }
  PENSTOCK_CHECK(false, "a piece past the last feature");
  return {};
}

template <typename Element>
void add_features(Context& context, const TokenOperands& operands, const TensorView& output_gradient,
                  int64_t in, const FeaturePiece& piece) {
  auto* const left = reinterpret_cast<Element*>(context.thread_scratch());
  const int64_t stride = output_gradient.row_stride();
  // The gradients of all layers are more than the cache holds.
  std::span<const char> ahead = memory_of(piece.gradient, piece.features * in);
  for (int64_t sum = 0; sum < operands.sums().pieces(); ++sum) {
    const int64_t tokens = operands.sums().length(sum);
    transpose_columns(data<Element>(output_gradient) + operands.sums().begin(sum) * stride + piece.column,
                      {.stride = stride,
                       .tokens = tokens,
                       .filled = tokens,
                       .columns = piece.features,
                       .ahead = std::exchange(ahead, {})},
                      left);
    context
        .made_product({.rows = piece.features,
                       .columns = in,
                       .inner = tokens,
                       .right = operands.kind(),
                       .result = Result::Added,
                       .type = output_gradient.type()})
        .run(left, operands.of(sum), piece.gradient);
  }
}

}  // namespace

void linear(Context& context, TensorView x, const PackedWeight& weight, TensorView output, TensorView added) {
  const int64_t tokens = x.size(0);
  expect_matrix(x, tokens, weight.in, "x", weight.type);
  expect_matrix(output, tokens, weight.out, "output", weight.type);
  if (!added.empty()) expect_matrix(added, tokens, weight.out, "added", weight.type);
  const Partition partition{tokens, kTokens};
  const PieceProducts products(context, partition,
                               {.columns = weight.out,
                                .inner = weight.in,
                                .right = right_operand(weight.type, Operand::Transposed),
                                .result = added.empty() ? Result::Written : Result::Added,
                                .type = weight.type,
                                .output_type = weight.type});
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t t = partition.begin(piece);
    const TensorView to = output.rows(t, partition.length(piece));
    if (!added.empty()) std::memcpy(to.data(), at(added, t), static_cast<size_t>(to.bytes()));
    products[piece].run(at(x, t), weight.forward(), to.data());
  });
}

void linear_input_gradient(Context& context, TensorView output_gradient, const PackedWeight& weight,
                           TensorView x_gradient) {
  const int64_t tokens = output_gradient.size(0);
  expect_matrix(output_gradient, tokens, weight.out, "output_gradient", weight.type);
  expect_matrix(x_gradient, tokens, weight.in, "x_gradient", weight.type);
  const bool packed = has_packed_products(weight.type);
  const Partition partition{tokens, kTokens};
  const PieceProducts products(context, partition,
                               {.columns = weight.in,
                                .inner = weight.out,
                                .right = right_operand(weight.type, Operand::Plain),
                                .type = weight.type,
                                .output_type = weight.type});
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t t = partition.begin(piece);
    products[piece].run(at(output_gradient, t), packed ? weight.backward() : weight.data,
                        x_gradient.rows(t, partition.length(piece)).data());
  });
}

void linear_weight_gradient(Context& context, TensorView output_gradient, TensorView x,
                            std::span<const TensorView> weight_gradients) {
  const int64_t tokens = x.size(0);
  const int64_t in = x.size(1);
  int64_t features = 0;
  int64_t pieces = 0;
  for (const TensorView& gradient : weight_gradients) {
    expect_matrix(gradient, gradient.size(0), in, "weight gradient");
    features += gradient.size(0);
    pieces += Partition{gradient.size(0), kFeatures}.pieces();
  }
  expect_matrix(x, tokens, in, "x", x.type());
  expect_matrix(output_gradient, tokens, features, "output_gradient", x.type());
  if (tokens == 0) return;
  const TokenOperands operands(context, x);
  for (int64_t piece = 0; piece < pieces; ++piece) {
    for (int64_t sum : {int64_t{0}, operands.sums().pieces() - 1}) {
      context.product({.rows = feature_piece(weight_gradients, piece).features,
                       .columns = in,
                       .inner = operands.sums().length(sum),
                       .right = operands.kind(),
                       .result = Result::Added,
                       .type = x.type()});
    }
  }
  context.reserve_per_thread(std::min(tokens, kTokensOfSum) * kFeatures);
  with_element(x.type(), [&](auto element) {
    context.parallel_for(pieces, [&](int64_t piece) {
      add_features<decltype(element)>(context, operands, output_gradient, in,
                                      feature_piece(weight_gradients, piece));
    });
  });
}

}  // namespace penstock::kernels::cpu
