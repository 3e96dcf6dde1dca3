#include <cstring>

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/linear/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTokens = 128;
constexpr int64_t kFeatures = 128;

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

// The products need dense operands, so some columns of a wider matrix are copied together: [rows, columns].
void copy_columns(const float* from, int64_t rows, int64_t stride, int64_t columns, float* to) {
  for (int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * columns, from + r * stride, columns * sizeof(float));
}

}  // namespace

void linear(Context& context, TensorView x, TensorView weight, TensorView output) {
  const LinearShape shape = linear_shape(x, weight, output);
  const Partition partition{shape.tokens, kTokens};
  const PieceProducts products(context, partition,
                               {.columns = shape.out, .inner = shape.in, .right = Operand::Transposed});
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t t = partition.begin(piece);
    products[piece].run(x.f32() + t * shape.in, weight.f32(), output.f32() + t * shape.out);
  });
}

void linear_input_gradient(Context& context, TensorView output_gradient, TensorView weight,
                           TensorView x_gradient, Operators::Accumulate accumulate) {
  const LinearShape shape = linear_shape(x_gradient, weight, output_gradient);
  const Partition partition{shape.tokens, kTokens};
  const PieceProducts products(
      context, partition,
      {.columns = shape.in,
       .inner = shape.out,
       .result = accumulate == Operators::Accumulate::Yes ? Result::Added : Result::Written});
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t t = partition.begin(piece);
    products[piece].run(output_gradient.f32() + t * shape.out, weight.f32(), x_gradient.f32() + t * shape.in);
  });
}

void linear_weight_gradient(Context& context, TensorView output_gradient, TensorView x,
                            TensorView weight_gradient) {
  const LinearShape shape = linear_shape(x, weight_gradient, output_gradient);
  if (shape.tokens == 0) return;
  const Partition partition{shape.out, kFeatures};
  const PieceProducts products(
      context, partition,
      {.columns = shape.in, .inner = shape.tokens, .left = Operand::Transposed, .result = Result::Added});
  const bool one_piece = partition.pieces() == 1;
  if (!one_piece) context.reserve_per_thread(shape.tokens * kFeatures);
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    const int64_t feature = partition.begin(piece);
    const float* left = output_gradient.f32();
    if (!one_piece) {
      copy_columns(left + feature, shape.tokens, shape.out, partition.length(piece),
                   context.thread_scratch());
      left = context.thread_scratch();
    }
    products[piece].run(left, x.f32(), weight_gradient.f32() + feature * shape.in);
  });
}

}  // namespace penstock::kernels::cpu
