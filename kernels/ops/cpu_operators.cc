#include "kernels/ops/adamw/contract.h"
#include "kernels/ops/add/contract.h"
#include "kernels/ops/attention/contract.h"
#include "kernels/ops/copy/contract.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/dispatch/contract.h"
#include "kernels/ops/dropout/contract.h"
#include "kernels/ops/embedding/contract.h"
#include "kernels/ops/experts/contract.h"
#include "kernels/ops/head_loss/contract.h"
#include "kernels/ops/linear/contract.h"
#include "kernels/ops/operators.h"
#include "kernels/ops/rms_norm/contract.h"
#include "kernels/ops/rope/contract.h"
#include "kernels/ops/router/contract.h"
#include "kernels/ops/sum_of_squares/contract.h"
#include "kernels/ops/swiglu/contract.h"

namespace penstock::kernels {
namespace {

// Hands each operation to its CPU implementation.
class CpuOperators final : public Operators {
 public:
  explicit CpuOperators(ComputeThreads& threads) : context_(threads) {}

  void embedding(TensorView tokens, TensorView table, TensorView output) override {
    cpu::embedding(context_, tokens, table, output);
  }
  void embedding_backward(TensorView tokens, TensorView output_gradient, TensorView table_gradient) override {
    cpu::embedding_backward(context_, tokens, output_gradient, table_gradient);
  }

  void rms_norm(TensorView x, TensorView weight, double epsilon, TensorView output,
                TensorView inverse_rms) override {
    cpu::rms_norm(context_, x, weight, epsilon, output, inverse_rms);
  }
  void rms_norm_backward(TensorView x, TensorView weight, TensorView inverse_rms, TensorView output_gradient,
                         TensorView x_gradient, TensorView weight_gradient, TensorView added,
                         TensorView output) override {
    cpu::rms_norm_backward(context_, x, weight, inverse_rms, output_gradient, x_gradient, weight_gradient,
                           added, output);
  }

  void linear(TensorView x, const PackedWeight& weight, TensorView output, TensorView added) override {
    cpu::linear(context_, x, weight, output, added);
  }
  void linear_input_gradient(TensorView output_gradient, const PackedWeight& weight,
                             TensorView x_gradient) override {
    cpu::linear_input_gradient(context_, output_gradient, weight, x_gradient);
  }
  void linear_weight_gradient(TensorView output_gradient, TensorView x,
                              std::span<const TensorView> weight_gradients) override {
    cpu::linear_weight_gradient(context_, output_gradient, x, weight_gradients);
  }
  void pack(TensorView weight, const PackedRows& packed) override { cpu::pack(context_, weight, packed); }

  void rope(TensorView x, int64_t sequence_length, int64_t head_size, double theta) override {
    cpu::rope(context_, rope_tables_.get(sequence_length, head_size, theta), x, sequence_length, head_size,
              Rotation::Forward);
  }
  void rope_backward(TensorView x_gradient, int64_t sequence_length, int64_t head_size,
                     double theta) override {
    cpu::rope(context_, rope_tables_.get(sequence_length, head_size, theta), x_gradient, sequence_length,
              head_size, Rotation::Backward);
  }

  void attention(const AttentionShape& shape, TensorView query, TensorView key, TensorView value,
                 TensorView output, TensorView log_sum_exp, TensorView document_starts) override {
    cpu::attention(context_, shape, query, key, value, output, log_sum_exp, document_starts);
  }
  void attention_backward(const AttentionShape& shape, TensorView query, TensorView key, TensorView value,
                          TensorView output, TensorView log_sum_exp, TensorView output_gradient,
                          TensorView query_gradient, TensorView key_gradient, TensorView value_gradient,
                          TensorView document_starts) override {
    cpu::attention_backward(context_, shape, query, key, value, output, log_sum_exp, output_gradient,
                            query_gradient, key_gradient, value_gradient, document_starts);
  }

  void swiglu(TensorView gate, TensorView up, TensorView output) override {
    cpu::swiglu(context_, gate, up, output);
  }
  void swiglu_backward(TensorView gate, TensorView up, TensorView output_gradient, TensorView gate_gradient,
                       TensorView up_gradient, TensorView output) override {
    cpu::swiglu_backward(context_, gate, up, output_gradient, gate_gradient, up_gradient, output);
  }

  void router(TensorView x, TensorView weight, bool normalise, const Routing& routing) override {
    cpu::router(context_, x, weight, normalise, routing);
  }
  RouterLosses router_losses(const Routing& routing, const RouterLossShape& counted) override {
    return cpu::router_losses(context_, routing, counted);
  }
  void router_gradient(const Routing& routing, bool normalise, TensorView weight_gradient,
                       const RouterLossShape& counted, const RouterLossScales& scales,
                       TensorView logit_gradient) override {
    cpu::router_gradient(context_, routing, normalise, weight_gradient, counted, scales, logit_gradient);
  }
  void router_input_gradient(TensorView logit_gradient, TensorView weight, TensorView x_gradient) override {
    cpu::router_input_gradient(context_, logit_gradient, weight, x_gradient);
  }
  void router_weight_gradient(TensorView logit_gradient, TensorView x, TensorView weight_gradient) override {
    cpu::router_weight_gradient(context_, logit_gradient, x, weight_gradient);
  }
  int64_t plan_dispatch(TensorView expert, int64_t capacity, const Dispatch& dispatch) override {
    return cpu::plan_dispatch(expert, capacity, dispatch);
  }
  void gather_rows(TensorView x, const Dispatch& dispatch, TensorView rows) override {
    cpu::gather_rows(context_, x, dispatch, rows);
  }
  void combine_rows(TensorView rows, const Dispatch& dispatch, TensorView weight, TensorView added,
                    TensorView output) override {
    cpu::combine_rows(context_, rows, dispatch, weight, added, output);
  }
  void gather_choices(TensorView values, const Dispatch& dispatch, TensorView of_rows) override {
    cpu::gather_choices(values, dispatch, of_rows);
  }
  void return_choices(TensorView of_rows, const Dispatch& dispatch, TensorView values) override {
    cpu::return_choices(of_rows, dispatch, values);
  }
  void experts(TensorView payload, TensorView offsets, std::span<const ExpertWeights> weights,
               TensorView gate_up, TensorView output) override {
    cpu::experts(context_, payload, offsets, weights, gate_up, output);
  }
  void experts_input_gradient(const ExpertInputGradient& rows, TensorView offsets,
                              std::span<const ExpertWeights> weights) override {
    cpu::experts_input_gradient(context_, rows, offsets, weights);
  }
  void experts_weight_gradient(const ExpertWeightGradient& rows, TensorView offsets,
                               std::span<const ExpertGradients> gradients) override {
    cpu::experts_weight_gradient(context_, rows, offsets, gradients);
  }

  void dropout(TensorView x, double probability, uint64_t key, TensorView output) override {
    cpu::dropout(context_, x, probability, key, output);
  }

  void add(TensorView a, TensorView b, TensorView output) override { cpu::add(context_, a, b, output); }

  double head_loss(TensorView x, const PackedWeight& weight, TensorView targets) override {
    return cpu::head_loss(context_, x, weight, targets);
  }
  double head_loss_and_gradients(TensorView x, const PackedWeight& weight, TensorView targets, double scale,
                                 TensorView x_gradient, TensorView weight_gradient) override {
    return cpu::head_loss_and_gradients(context_, x, weight, targets, scale, x_gradient, weight_gradient);
  }

  double sum_of_squares(TensorView x) override { return cpu::sum_of_squares(context_, x); }
  void adamw(TensorView parameter, TensorView gradient, TensorView first_moment, TensorView second_moment,
             const AdamWStep& step, const PackedRows& packed) override {
    cpu::adamw(context_, parameter, gradient, first_moment, second_moment, step, packed);
  }
  void fill(TensorView x, float value) override { cpu::fill(context_, x, value); }
  void copy(TensorView source, TensorView target) override { cpu::copy(context_, source, target); }

 private:
  cpu::Context context_;
  RopeTables rope_tables_;
};

}  // namespace

std::unique_ptr<Operators> make_cpu_operators(ComputeThreads& threads) {
  return std::make_unique<CpuOperators>(threads);
}

std::string cpu_fingerprint() {
  return cpu::matrix_product_fingerprint();
}

}  // namespace penstock::kernels
