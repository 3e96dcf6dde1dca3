#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/packing.h"
#include "kernels/ops/experts/cpu.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kFeatures = 128;
constexpr int64_t kRowsOfSum = 512;
constexpr int64_t kSumMultiple = 32;  // rows of a packed operand come in sixteens, in bfloat16 in thirty-twos

// Rows of all experts, [R, columns], as the right operands of the sums.
class SumOperands {
 public:
  SumOperands(const TensorView& rows, char* memory)
      : rows_(rows), memory_(memory), packed_(has_packed_products(rows.type())) {}

  static int64_t row_bytes(const TensorView& rows) {
    return rounded_up(rows.size(1), 64) * size_bytes(rows.type());
  }

  template <typename Element>
  void make(const ExpertPiece& sum, Element* scratch) const {
    const int64_t columns = rows_.size(1);
    const Element* from = data<Element>(rows_) + sum.first * columns;
    if (sum.filled != sum.rows) {
      fill_up(sum, data<Element>(rows_), columns, columns, scratch);
      from = scratch;
    }
    auto* const to = reinterpret_cast<Element*>(at(sum));
    if (packed_) return pack_rows(from, sum.filled, columns, to);
    std::memcpy(to, from, static_cast<size_t>(sum.filled * columns) * sizeof(Element));
  }
  char* at(const ExpertPiece& sum) const { return memory_ + sum.filled_before * row_bytes(rows_); }
  int64_t columns() const { return rows_.size(1); }

 private:
  TensorView rows_;
  char* memory_;
  bool packed_;
};

// Some features of one expert's matrix: whose columns of which rows, and the place of their gradient.
struct FeaturePiece {
  int64_t expert = 0;
  TensorView left;  // [R, ..]
  int64_t column = 0;
  int64_t features = 0;
  const SumOperands* right = nullptr;
  float* gradient = nullptr;  // [features, right->columns()]
};

// The matrices of all experts in pieces of 128 features: gate, up, down of one expert after another.
class FeaturePieces {
 public:
  FeaturePieces(const ExpertWeightGradient& rows, const ExpertShape& shape,
                std::span<const ExpertGradients> gradients, const SumOperands& payload,
                const SumOperands& weighted)
      : rows_(rows),
        intermediate_{shape.intermediate, kFeatures},
        hidden_{shape.hidden, kFeatures},
        gradients_(gradients),
        payload_(payload),
        weighted_(weighted) {}

  int64_t of_an_expert() const { return 2 * intermediate_.pieces() + hidden_.pieces(); }
  int64_t count() const { return of_an_expert() * static_cast<int64_t>(gradients_.size()); }

  FeaturePiece operator[](int64_t index) const {
    const int64_t expert = index / of_an_expert();
    const ExpertGradients& of = gradients_[static_cast<size_t>(expert)];
    int64_t piece = index % of_an_expert();
    if (piece < intermediate_.pieces())
      return {expert,
              rows_.gate_up_gradient,
              intermediate_.begin(piece),
              intermediate_.length(piece),
              &payload_,
              row(of.gate, intermediate_.begin(piece))};
    piece -= intermediate_.pieces();
    if (piece < intermediate_.pieces())
      return {expert,
              rows_.gate_up_gradient,
              intermediate_.total + intermediate_.begin(piece),
              intermediate_.length(piece),
              &payload_,
              row(of.up, intermediate_.begin(piece))};
    piece -= intermediate_.pieces();
    return {expert,
            rows_.output_gradient,
            hidden_.begin(piece),
            hidden_.length(piece),
            &weighted_,
            row(of.down, hidden_.begin(piece))};
  }

 private:
  static float* row(const TensorView& gradient, int64_t first) {
    return gradient.f32() + first * gradient.size(1);
  }

  const ExpertWeightGradient& rows_;
  Partition intermediate_, hidden_;
  std::span<const ExpertGradients> gradients_;
  const SumOperands& payload_;
  const SumOperands& weighted_;
};

ProductShape sum_product(const FeaturePiece& piece, int64_t rows) {
  const DataType type = piece.left.type();
  return {.rows = piece.features,
          .columns = piece.right->columns(),
          .inner = rows,
          .right = has_packed_products(type) ? Operand::Packed : Operand::Plain,
          .result = Result::Added,
          .type = type};
}

template <typename Element>
void add_features(Context& context, const ExpertPieces& sums, int64_t filled_before,
                  const FeaturePiece& piece) {
  auto* const left = reinterpret_cast<Element*>(context.thread_scratch());
  Element* const block = left + kFeatures * kRowsOfSum;
  const Element* const columns = data<Element>(piece.left) + piece.column;
  const int64_t width = piece.left.size(1);
  for (int64_t s = 0; s < sums.rows_of(piece.expert).pieces(); ++s) {
    const ExpertPiece sum = sums.piece(piece.expert, s, filled_before);
    if (sum.filled == sum.rows) {
      transpose_columns(columns + sum.first * width, width, sum.rows, piece.features, left);
    } else {
      fill_up(sum, columns, width, piece.features, block);
      transpose_columns(block, piece.features, sum.filled, piece.features, left);
    }
    context.made_product(sum_product(piece, sum.filled)).run(left, piece.right->at(sum), piece.gradient);
  }
}

void check(const ExpertWeightGradient& rows, const ExpertShape& shape,
           std::span<const ExpertGradients> gradients) {
  expect_matrix(rows.output_gradient, shape.most_rows, shape.hidden, "output_gradient", shape.type);
  expect_matrix(rows.weighted, shape.most_rows, shape.intermediate, "weighted", shape.type);
  PENSTOCK_CHECK(static_cast<int64_t>(gradients.size()) == shape.experts,
                 "gradients of {} experts, rows of {}", gradients.size(), shape.experts);
  for (const ExpertGradients& each : gradients) {
    expect_matrix(each.gate, shape.intermediate, shape.hidden, "gradient of gate");
    expect_matrix(each.up, shape.intermediate, shape.hidden, "gradient of up");
    expect_matrix(each.down, shape.hidden, shape.intermediate, "gradient of down");
  }
}

// Every sum that any routing may need.
void make_products(Context& context, const FeaturePieces& pieces, int64_t most_rows) {
  const int64_t most = std::min(kRowsOfSum, rounded_up(most_rows, kSumMultiple));
  for (int64_t index = 0; index < pieces.of_an_expert(); ++index) {
    for (int64_t rows = kSumMultiple; rows <= most; rows += kSumMultiple) {
      context.product(sum_product(pieces[index], rows));
    }
  }
}

}  // namespace

void experts_weight_gradient(Context& context, const ExpertWeightGradient& rows, TensorView offsets,
                             std::span<const ExpertGradients> gradients) {
  const ExpertShape shape = expert_shape(rows.payload, rows.gate_up_gradient, offsets);
  check(rows, shape, gradients);
  if (shape.most_rows == 0) return;
  const int64_t most_filled = shape.most_rows + kSumMultiple * shape.experts;
  const int64_t payload_bytes = most_filled * SumOperands::row_bytes(rows.payload);
  const int64_t bytes = payload_bytes + most_filled * SumOperands::row_bytes(rows.weighted);
  auto* const memory = reinterpret_cast<char*>(context.reserve_shared(bytes / 4, Shared::PackedRows));
  const SumOperands payload(rows.payload, memory);
  const SumOperands weighted(rows.weighted, memory + payload_bytes);
  const FeaturePieces features(rows, shape, gradients, payload, weighted);
  make_products(context, features, shape.most_rows);
  context.reserve_per_thread(
      std::max(2 * kFeatures * kRowsOfSum, kRowsOfSum * std::max(shape.hidden, shape.intermediate)));
  const ExpertPieces sums(offsets, kRowsOfSum, kSumMultiple);
  with_element(shape.type, [&](auto element) {
    using Element = decltype(element);
    context.parallel_for(sums.count(), [&](int64_t index) {
      const ExpertPiece sum = sums[index];
      auto* const scratch = reinterpret_cast<Element*>(context.thread_scratch());
      payload.make(sum, scratch);
      weighted.make(sum, scratch);
    });
    context.parallel_for(features.count(), [&](int64_t index) {
      const FeaturePiece piece = features[index];
      add_features<Element>(context, sums, sums.filled_before(piece.expert), piece);
    });
  });
}

}  // namespace penstock::kernels::cpu
