#include <algorithm>
#include <cmath>

#include "base/ieee_math.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/exponentials.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/head_loss/contract.h"
#include "kernels/ops/linear/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kPieceLogits = int64_t{1} << 22;         // 16 MiB of float32
constexpr int64_t kChunkBytes = int64_t{64} << 20;         // of the gradients of logits
constexpr int64_t kLargestChunkTokens = int64_t{1} << 10;  // enough for the weight gradient's products

// Tokens whose logits one thread computes at a time: 128, fewer for a vocabulary above 32,768.
int64_t piece_tokens(int64_t vocabulary) {
  return std::clamp(kPieceLogits / vocabulary / 16 * 16, int64_t{32}, int64_t{128});
}

// Tokens whose gradients of logits exist at a time: whole pieces.
int64_t chunk_tokens(int64_t vocabulary, DataType type) {
  const int64_t piece = piece_tokens(vocabulary);
  const int64_t fitting = std::min(kChunkBytes / (vocabulary * size_bytes(type)), kLargestChunkTokens);
  return std::max<int64_t>(fitting / piece, 1) * piece;
}

// Of the exponentials of a row of logits, less the largest one.
struct Softmax {
  float sum;
  double log_sum_exp;
};

// The loss of a token; `exponentials` become those of its logits.
PENSTOCK_INLINE inline double token_loss(float* logits, int64_t vocabulary, int32_t target,
                                         Softmax& softmax) {
  const float of_target = target == kNoTarget ? 0 : logits[target];
  const Exponentials row = exponentials(logits, vocabulary);
  softmax = {row.sum, static_cast<double>(row.largest) + natural_log(static_cast<double>(row.sum))};
  return target == kNoTarget ? 0 : softmax.log_sum_exp - static_cast<double>(of_target);
}

// From the exponentials to the gradient of scale x the token's loss, rounded to the type of the activations.
template <typename Element>
PENSTOCK_INLINE inline void token_gradient(float* exponentials, int64_t vocabulary, int32_t target, float sum,
                                           float scale, Element* gradient) {
  const float factor = target == kNoTarget ? 0 : scale / sum;
  if (target != kNoTarget) exponentials[target] -= sum;
  for_each_lanes(vocabulary, [&](const auto& lanes, int64_t v) PENSTOCK_INLINE {
    lanes.store(gradient + v, lanes.load(exponentials + v) * factor);
  });
}

void check(const TensorView& x, const PackedWeight& weight, const TensorView& targets) {
  expect_matrix(x, x.size(0), weight.in, "x", weight.type);
  expect_elements(targets, x.size(0), "targets", DataType::Int32);
  for (int64_t t = 0; t < targets.elements(); ++t) {
    const int32_t target = targets.i32()[t];
    PENSTOCK_CHECK(target >= kNoTarget && target < weight.out, "target {} at {}, vocabulary of {}", target, t,
                   weight.out);
  }
}

ProductShape logits_product(const PackedWeight& weight, int64_t rows) {
  return {.rows = rows,
          .columns = weight.out,
          .inner = weight.in,
          .right = has_packed_products(weight.type) ? Operand::Packed : Operand::Transposed,
          .type = weight.type};
}
ProductShape x_gradient_product(const PackedWeight& weight, int64_t rows) {
  return {.rows = rows,
          .columns = weight.in,
          .inner = weight.out,
          .right = has_packed_products(weight.type) ? Operand::Packed : Operand::Plain,
          .type = weight.type,
          .output_type = weight.type};
}

double sum_in_order(const double* losses, int64_t tokens) {
  double total = 0;
  for (int64_t t = 0; t < tokens; ++t) total += losses[t];
  return total;
}

// What the chunks of tokens share.
template <typename Element>
struct Head {
  const Element* x;
  PackedWeight weight;
  const int32_t* targets;
  float scale;
  Element* x_gradient;
  Element* logit_gradients;  // [tokens of a chunk, vocabulary]
  double* losses;            // by token
};

template <typename Element>
void run_piece(Context& context, const Head<Element>& head, int64_t first, int64_t rows, Element* gradients) {
  const int64_t vocabulary = head.weight.out;
  const int64_t hidden = head.weight.in;
  float* const logits = context.thread_scratch();
  context.made_product(logits_product(head.weight, rows))
      .run(head.x + first * hidden, head.weight.forward(), logits);
  vectorised([&]() PENSTOCK_INLINE {
    for (int64_t t = 0; t < rows; ++t) {
      float* row = logits + t * vocabulary;
      const int32_t target = head.targets[first + t];
      Softmax softmax{};
      head.losses[first + t] = token_loss(row, vocabulary, target, softmax);
      token_gradient(row, vocabulary, target, softmax.sum, head.scale, gradients + t * vocabulary);
    }
  });
  const bool packed = has_packed_products(head.weight.type);
  context.made_product(x_gradient_product(head.weight, rows))
      .run(gradients, packed ? head.weight.backward() : head.weight.data, head.x_gradient + first * hidden);
}

template <typename Element>
void run_chunks(Context& context, const Head<Element>& head, const TensorView& x, const Partition& chunks,
                TensorView weight_gradient) {
  const int64_t vocabulary = head.weight.out;
  for (int64_t chunk = 0; chunk < chunks.pieces(); ++chunk) {
    const int64_t begin = chunks.begin(chunk);
    const int64_t tokens = chunks.length(chunk);
    const Partition pieces{tokens, piece_tokens(vocabulary)};
    for (int64_t piece : {int64_t{0}, pieces.pieces() - 1}) {
      context.product(logits_product(head.weight, pieces.length(piece)));
      context.product(x_gradient_product(head.weight, pieces.length(piece)));
    }
    context.reserve_per_thread(pieces.length(0) * vocabulary);
    context.parallel_for(pieces.pieces(), [&](int64_t piece) {
      run_piece(context, head, begin + pieces.begin(piece), pieces.length(piece),
                head.logit_gradients + pieces.begin(piece) * vocabulary);
    });
    linear_weight_gradient(context, TensorView(head.logit_gradients, x.type(), {tokens, vocabulary}),
                           x.rows(begin, tokens), {&weight_gradient, 1});
  }
}

}  // namespace

double head_loss(Context& context, TensorView x, const PackedWeight& weight, TensorView targets) {
  check(x, weight, targets);
  const int64_t tokens = x.size(0);
  if (tokens == 0) return 0;
  const int64_t vocabulary = weight.out;
  const Partition pieces{tokens, piece_tokens(vocabulary)};
  for (int64_t piece : {int64_t{0}, pieces.pieces() - 1}) {
    context.product(logits_product(weight, pieces.length(piece)));
  }
  context.reserve_per_thread(pieces.length(0) * vocabulary);
  double* losses = reinterpret_cast<double*>(context.reserve_shared(2 * tokens));
  context.parallel_for(pieces.pieces(), [&](int64_t piece) {
    const int64_t begin = pieces.begin(piece);
    float* const logits = context.thread_scratch();
    context.made_product(logits_product(weight, pieces.length(piece)))
        .run(x.rows(begin, pieces.length(piece)).data(), weight.forward(), logits);
    vectorised([&]() PENSTOCK_INLINE {
      for (int64_t t = 0; t < pieces.length(piece); ++t) {
        Softmax softmax{};
        losses[begin + t] =
            token_loss(logits + t * vocabulary, vocabulary, targets.i32()[begin + t], softmax);
      }
    });
  });
  return sum_in_order(losses, tokens);
}

double head_loss_and_gradients(Context& context, TensorView x, const PackedWeight& weight, TensorView targets,
                               double scale, TensorView x_gradient, TensorView weight_gradient) {
  check(x, weight, targets);
  expect_matrix(x_gradient, x.size(0), weight.in, "x_gradient", weight.type);
  expect_matrix(weight_gradient, weight.out, weight.in, "weight_gradient");
  const int64_t tokens = x.size(0);
  if (tokens == 0) return 0;
  const Partition chunks{tokens, chunk_tokens(weight.out, weight.type)};
  const int64_t chunk_bytes = std::min(tokens, chunks.size) * weight.out * size_bytes(weight.type);
  float* const logits = context.reserve_shared((chunk_bytes + 3) / 4, Shared::Logits);
  double* const losses = reinterpret_cast<double*>(context.reserve_shared(2 * tokens));
  with_element(weight.type, [&](auto element) {
    using Element = decltype(element);
    const Head<Element> head{.x = data<Element>(x),
                             .weight = weight,
                             .targets = targets.i32(),
                             .scale = static_cast<float>(scale),
                             .x_gradient = data<Element>(x_gradient),
                             .logit_gradients = reinterpret_cast<Element*>(logits),
                             .losses = losses};
    run_chunks(context, head, x, chunks, weight_gradient);
  });
  return sum_in_order(losses, tokens);
}

}  // namespace penstock::kernels::cpu
