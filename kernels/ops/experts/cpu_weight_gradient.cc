#include <array>
#include <utility>

#include "kernels/ops/cpu/ahead.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/packing.h"
#include "kernels/ops/experts/cpu.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kFeatures = 192;
constexpr int64_t kRowsOfSum = 512;
constexpr int64_t kRoundBytes =
    512 * 1024;  // of right operands, so that they are still in the cache when they are read

// Rows that a product adds up, after zeros have filled them up: steps of a sixteenth or less.
constexpr auto kSumSizes = [] {
  std::array<int64_t, 32> sizes{};
  int64_t size = 0;
  for (int64_t& each : sizes) each = size += size < 128 ? 8 : size < 256 ? 16 : 32;
  return sizes;
}();
static_assert(kSumSizes.back() == kRowsOfSum);
constexpr int64_t kPadding = 32;  // the blocked layout rounds rows up to a multiple: 16, in bfloat16 32

int64_t sum_size(int64_t rows) {
  return *std::lower_bound(kSumSizes.begin(), kSumSizes.end(), rows);
}

// Rows of all experts, [R, columns], as the right operands of the sums.
class SumOperands {
 public:
  // memory: row_bytes for each row.
  SumOperands(const TensorView& rows, char* memory)
      : rows_(rows), memory_(memory), packed_(has_packed_products(rows.type())) {}

  static int64_t row_bytes(const TensorView& rows) {
    return rounded_up(rows.size(1), 64) * size_bytes(rows.type());
  }

  template <typename Element>
  void make(const ExpertPiece& sum, int64_t place) const {
    const Element* const from = data<Element>(rows_) + sum.first * columns();
    auto* const to = reinterpret_cast<Element*>(at(place));
    const int64_t filled = sum_size(sum.rows);
    if (packed_) return pack_rows(from, sum.rows, filled, columns(), to);
    std::copy_n(from, sum.rows * columns(), to);
    std::fill_n(to + sum.rows * columns(), (filled - sum.rows) * columns(), Element{});
  }
  char* at(int64_t place) const { return memory_ + place * row_bytes(rows_); }
  int64_t columns() const { return rows_.size(1); }

 private:
  TensorView rows_;
  char* memory_;
  bool packed_;
};

// Some features of one expert's matrix: the columns of which rows, and the place of their gradient.
struct FeaturePiece {
  const TensorView& left;  // [R, ..]
  int64_t column = 0;
  int64_t features = 0;
  const SumOperands& right;
  const SizedProducts& products;  // by sum_size()
  float* gradient = nullptr;      // [features, right.columns()]
};

// One of the matrices that every expert has, in pieces of 128 features.
class FeatureMatrix {
 public:
  // Its features are columns [column, column + features) of `left` [R, ..].
  FeatureMatrix(Context& context, const TensorView& left, int64_t column, int64_t features,
                const SumOperands& right)
      : left_(left),
        column_(column),
        pieces_{features, kFeatures},
        right_(right),
        whole_(sums_of(context, pieces_.length(0))),
        last_(sums_of(context, pieces_.length(pieces_.pieces() - 1))) {}

  int64_t pieces() const { return pieces_.pieces(); }
  FeaturePiece piece(int64_t index, const TensorView& gradient) const {
    const int64_t first = pieces_.begin(index);
    return {.left = left_,
            .column = column_ + first,
            .features = pieces_.length(index),
            .right = right_,
            .products = index + 1 == pieces() ? last_ : whole_,
            .gradient = gradient.f32() + first * gradient.size(1)};
  }

 private:
  const SizedProducts& sums_of(Context& context, int64_t features) const {
    const auto end =
        std::lower_bound(kSumSizes.begin(), kSumSizes.end(), std::min(left_.size(0), kRowsOfSum));
    return context.products({.rows = features,
                             .columns = right_.columns(),
                             .right = has_packed_products(left_.type()) ? Operand::Packed : Operand::Plain,
                             .result = Result::Added,
                             .type = left_.type()},
                            &ProductShape::inner, {kSumSizes.begin(), end + 1});
  }

  const TensorView& left_;
  int64_t column_;
  Partition pieces_;
  const SumOperands& right_;
  const SizedProducts& whole_;
  const SizedProducts& last_;
};

// The three matrices of an expert.
struct ExpertMatrices {
  FeatureMatrix gate, up, down;

  int64_t pieces() const { return gate.pieces() + up.pieces() + down.pieces(); }
  FeaturePiece piece(int64_t index, const ExpertGradients& gradients) const {
    if (index < gate.pieces()) return gate.piece(index, gradients.gate);
    index -= gate.pieces();
    if (index < up.pieces()) return up.piece(index, gradients.up);
    return down.piece(index - up.pieces(), gradients.down);
  }
};

// Sums in their order, whose right operands are in memory at the same time.
using Round = std::span<const ExpertPiece>;

// Where the right operand of a sum begins: behind those before it, which padding makes up to 31 rows longer.
int64_t place(const Round& round, int64_t sum) {
  return round[static_cast<size_t>(sum)].first - round[0].first + sum * (kPadding - 1);
}

// As many of the first sums as memory for `most_rows` holds; at least one.
Round next_round(const Round& sums, int64_t most_rows) {
  int64_t count = 1;
  while (count < std::ssize(sums) &&
         place(sums, count) + sums[static_cast<size_t>(count)].rows + kPadding <= most_rows)
    ++count;
  return sums.first(static_cast<size_t>(count));
}

// Adds what the expert's sums, from the first one of it in the round, give to a piece of its features.
template <typename Element>
void add_features(Context& context, const Round& round, int64_t first, const FeaturePiece& piece) {
  auto* const left = reinterpret_cast<Element*>(context.thread_scratch());
  const int64_t width = piece.left.size(1);
  const int64_t expert = round[static_cast<size_t>(first)].expert;
  // The gradients of all experts are more than the cache holds.
  std::span<const char> ahead = memory_of(piece.gradient, piece.features * piece.right.columns());
  for (int64_t s = first; s < std::ssize(round); ++s) {
    const ExpertPiece& sum = round[static_cast<size_t>(s)];
    if (sum.expert != expert) break;
    const int64_t filled = sum_size(sum.rows);
    transpose_columns(data<Element>(piece.left) + sum.first * width + piece.column,
                      {.stride = width,
                       .tokens = sum.rows,
                       .filled = filled,
                       .columns = piece.features,
                       .ahead = std::exchange(ahead, {})},
                      left);
    piece.products[filled].run(left, piece.right.at(place(round, s)), piece.gradient);
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

}  // namespace

void experts_weight_gradient(Context& context, const ExpertWeightGradient& rows, TensorView offsets,
                             std::span<const ExpertGradients> gradients) {
  const ExpertShape shape = expert_shape(rows.payload, rows.gate_up_gradient, offsets);
  check(rows, shape, gradients);
  if (shape.most_rows == 0) return;
  const int64_t row_bytes = SumOperands::row_bytes(rows.payload) + SumOperands::row_bytes(rows.weighted);
  const int64_t most_rows = std::max(kRowsOfSum, kRoundBytes / row_bytes) + kPadding;
  auto* const memory =
      reinterpret_cast<char*>(context.reserve_shared(most_rows * row_bytes / 4, Shared::PackedRows));
  const SumOperands payload(rows.payload, memory);
  const SumOperands weighted(rows.weighted, memory + most_rows * SumOperands::row_bytes(rows.payload));
  const ExpertMatrices matrices{
      {context, rows.gate_up_gradient, 0, shape.intermediate, payload},
      {context, rows.gate_up_gradient, shape.intermediate, shape.intermediate, payload},
      {context, rows.output_gradient, 0, shape.hidden, weighted}};
  context.reserve_per_thread(kFeatures * kRowsOfSum);
  with_element(shape.type, [&](auto element) {
    using Element = decltype(element);
    Round left = expert_pieces(context, offsets, kRowsOfSum, shape.most_rows);
    while (!left.empty()) {
      const Round round = next_round(left, most_rows);
      left = left.subspan(round.size());
      context.parallel_for(std::ssize(round), [&](int64_t s) {
        payload.make<Element>(round[static_cast<size_t>(s)], place(round, s));
        weighted.make<Element>(round[static_cast<size_t>(s)], place(round, s));
      });
      context.parallel_for(std::ssize(round) * matrices.pieces(), [&](int64_t index) {
        const int64_t sum = index / matrices.pieces();
        const int64_t expert = round[static_cast<size_t>(sum)].expert;
        if (sum > 0 && round[static_cast<size_t>(sum) - 1].expert == expert) return;  // its first one adds it
        add_features<Element>(
            context, round, sum,
            matrices.piece(index % matrices.pieces(), gradients[static_cast<size_t>(expert)]));
      });
    }
  });
}

}  // namespace penstock::kernels::cpu
