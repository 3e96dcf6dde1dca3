#include <algorithm>
#include <cmath>

#include "base/ieee_math.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/head_loss/contract.h"
#include "kernels/ops/linear/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kPieceLogits = int64_t{1} << 22;  // 16 MiB
constexpr int64_t kPiecesPerChunk = 4;

// Tokens whose logits one thread computes at a time: 128, fewer for a vocabulary above 32,768.
int64_t piece_tokens(int64_t vocabulary) {
  return std::clamp(kPieceLogits / vocabulary / 16 * 16, int64_t{32}, int64_t{128});
}

struct TokenLoss {
  float log_sum_exp;
  double loss;
};

PENSTOCK_INLINE inline TokenLoss token_loss(const float* logits, int64_t vocabulary, int32_t target) {
  Lanes most = broadcast(-INFINITY);
  for_each_lanes(vocabulary, [&](const auto& lanes, int64_t v)
                                 PENSTOCK_INLINE { most = larger(lanes.load(logits + v, -INFINITY), most); });
  const float offset = largest(most);
  Lanes sums{};
  for_each_lanes(vocabulary, [&](const auto& lanes, int64_t v) PENSTOCK_INLINE {
    sums += exp(lanes.load(logits + v, -INFINITY) - offset);
  });
  const double log_sum = static_cast<double>(offset) + natural_log(static_cast<double>(sum(sums)));
  const double loss = target == kNoTarget ? 0 : log_sum - static_cast<double>(logits[target]);
  return {static_cast<float>(log_sum), loss};
}

// Turns a row of logits into the gradient of scale x the token's loss.
PENSTOCK_INLINE inline void token_gradient(float* logits, int64_t vocabulary, int32_t target,
                                           float log_sum_exp, float scale) {
  if (target == kNoTarget) {
    for_each_lanes(vocabulary,
                   [&](const auto& lanes, int64_t v) PENSTOCK_INLINE { lanes.store(logits + v, Lanes{}); });
    return;
  }
  for_each_lanes(vocabulary, [&](const auto& lanes, int64_t v) PENSTOCK_INLINE {
    lanes.store(logits + v, exp(lanes.load(logits + v) - log_sum_exp) * scale);
  });
  logits[target] -= scale;
}

void check_targets(const int32_t* targets, const HeadLossShape& shape) {
  for (int64_t t = 0; t < shape.tokens; ++t) {
    PENSTOCK_CHECK(targets[t] >= kNoTarget && targets[t] < shape.vocabulary,
                   "target {} at {}, vocabulary of {}", targets[t], t, shape.vocabulary);
  }
}

ProductShape logits_product(const HeadLossShape& shape, int64_t rows) {
  return {.rows = rows, .columns = shape.vocabulary, .inner = shape.hidden, .right = Operand::Transposed};
}
ProductShape x_gradient_product(const HeadLossShape& shape, int64_t rows) {
  return {.rows = rows, .columns = shape.hidden, .inner = shape.vocabulary};
}

// The gradients of one chunk of tokens: its logits become their own gradient in `logits` [chunk, vocabulary].
struct Chunk {
  HeadLossShape shape;  // of the chunk
  const float* x;
  const float* weight;
  const int32_t* targets;
  const float* log_sum_exp;
  float scale;
  float* x_gradient;
  float* logits;
};

void logits_and_x_gradient(Context& context, const Chunk& chunk) {
  const int64_t vocabulary = chunk.shape.vocabulary;
  const int64_t hidden = chunk.shape.hidden;
  const Partition pieces{chunk.shape.tokens, piece_tokens(vocabulary)};
  // Both row counts of the partition, made before the threads start.
  for (int64_t piece : {int64_t{0}, pieces.pieces() - 1}) {
    context.product(logits_product(chunk.shape, pieces.length(piece)));
    context.product(x_gradient_product(chunk.shape, pieces.length(piece)));
  }
  context.parallel_for(pieces.pieces(), [&](int64_t piece) {
    const int64_t begin = pieces.begin(piece);
    const int64_t rows = pieces.length(piece);
    float* logits = chunk.logits + begin * vocabulary;
    context.made_product(logits_product(chunk.shape, rows))
        .run(chunk.x + begin * hidden, chunk.weight, logits);
    vectorised([&]() PENSTOCK_INLINE {
      for (int64_t t = 0; t < rows; ++t) {
        token_gradient(logits + t * vocabulary, vocabulary, chunk.targets[begin + t],
                       chunk.log_sum_exp[begin + t], chunk.scale);
      }
    });
    context.made_product(x_gradient_product(chunk.shape, rows))
        .run(logits, chunk.weight, chunk.x_gradient + begin * hidden);
  });
}

}  // namespace

double head_loss(Context& context, TensorView x, TensorView weight, TensorView targets,
                 TensorView log_sum_exp) {
  const HeadLossShape shape = head_loss_shape(x, weight, targets, log_sum_exp);
  if (shape.tokens == 0) return 0;
  const int32_t* target = targets.i32();
  check_targets(target, shape);
  const Partition pieces{shape.tokens, piece_tokens(shape.vocabulary)};
  for (int64_t piece : {int64_t{0}, pieces.pieces() - 1})
    context.product(logits_product(shape, pieces.length(piece)));
  context.reserve_per_thread(pieces.length(0) * shape.vocabulary);
  double* losses = reinterpret_cast<double*>(context.reserve_shared(2 * shape.tokens));
  context.parallel_for(pieces.pieces(), [&](int64_t piece) {
    const int64_t begin = pieces.begin(piece);
    const int64_t rows = pieces.length(piece);
    float* logits = context.thread_scratch();
    context.made_product(logits_product(shape, rows))
        .run(x.f32() + begin * shape.hidden, weight.f32(), logits);
    vectorised([&]() PENSTOCK_INLINE {
      for (int64_t t = 0; t < rows; ++t) {
        const TokenLoss token =
            token_loss(logits + t * shape.vocabulary, shape.vocabulary, target[begin + t]);
        log_sum_exp.f32()[begin + t] = token.log_sum_exp;
        losses[begin + t] = token.loss;
      }
    });
  });
  double total = 0;
  for (int64_t t = 0; t < shape.tokens; ++t) total += losses[t];
  return total;
}

void head_loss_backward(Context& context, TensorView x, TensorView weight, TensorView targets,
                        TensorView log_sum_exp, double scale, TensorView x_gradient,
                        TensorView weight_gradient) {
  const HeadLossShape shape = head_loss_shape(x, weight, targets, log_sum_exp);
  expect_matrix(x_gradient, shape.tokens, shape.hidden, "x_gradient");
  expect_matrix(weight_gradient, shape.vocabulary, shape.hidden, "weight_gradient");
  check_targets(targets.i32(), shape);
  const Partition chunks{shape.tokens, kPiecesPerChunk * piece_tokens(shape.vocabulary)};
  float* logits = context.reserve_shared(std::min(shape.tokens, chunks.size) * shape.vocabulary);
  for (int64_t i = 0; i < chunks.pieces(); ++i) {
    const int64_t begin = chunks.begin(i);
    const int64_t tokens = chunks.length(i);
    const int64_t offset = begin * shape.hidden;
    logits_and_x_gradient(context, {.shape = {tokens, shape.hidden, shape.vocabulary},
                                    .x = x.f32() + offset,
                                    .weight = weight.f32(),
                                    .targets = targets.i32() + begin,
                                    .log_sum_exp = log_sum_exp.f32() + begin,
                                    .scale = static_cast<float>(scale),
                                    .x_gradient = x_gradient.f32() + offset,
                                    .logits = logits});
    linear_weight_gradient(context, TensorView(logits, DataType::Float32, {tokens, shape.vocabulary}),
                           x.rows(begin, tokens), weight_gradient);
  }
}

}  // namespace penstock::kernels::cpu
