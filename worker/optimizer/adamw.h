// AdamW with decoupled weight decay over the parameters that one rank owns, with global-norm clipping. Two
// groups: the parameters that optimizer.no_decay names are not decayed.
//
// A step: every rank takes local_squared_norms(), the ranks exchange them, each forms gradient_norm() over
// all parameters in model order (so that all have the same bits), then apply().
//
// A step that may have to be taken back: apply_provisionally(), and when the norm is known keep() or roll_back(), which
// leave the same bits as a step that waited for the norm.
//
// Parameters without moments here are another rank's to update (ZeRO-1): a step makes their gradients zero and leaves
// weight and packed copy to whoever gets the new weight. Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/device/slab.h"
#include "kernels/ops/operators.h"
#include "plan/spec/job_spec.h"
#include "worker/model/parameters.h"

namespace penstock::worker {

// sum_of_squares of one parameter's gradient.
struct SquaredNorm {
  int32_t parameter = 0;  // place in model order
  double value = 0;
};

// The norm over all parameters of a model. Never allocates after construction.
class GradientNorm {
 public:
  explicit GradientNorm(int64_t parameters) : values_(static_cast<size_t>(parameters)) {}
  // sqrt of the sum in model order, in float64. `squared_norms` holds every parameter of the model once, in any
  // order; Internal when one is missing, twice there or out of range.
  StatusOr<double> of(std::span<const SquaredNorm> squared_norms);

 private:
  std::vector<std::optional<double>> values_;  // by parameter
};

// What gradients are multiplied by so that their norm is at most `limit` (0: no limit, 1 always).
double clipping_coefficient(double norm, double limit);

class AdamW {
 public:
  // `has_moments`: beside the parameters; empty: all have. `parameters` and `operators` outlive it. ResourceExhausted: no
  // memory for the moments.
  static StatusOr<AdamW> create(const plan::TrainSpec& train, const ParameterStore& parameters,
                                kernels::Operators& operators, const std::vector<bool>& has_moments = {});

  // In model order. Valid until the next call.
  std::span<const SquaredNorm> local_squared_norms();

  // Updates every weight of the rank from its gradient, renews its packed copy and makes the gradient zero, in one
  // pass over the memory. Where the norm is not finite, which every rank sees, optimizer.nonfinite says: skip, and
  // gradients become zero while nothing else changes; or FailedPrecondition, and nothing changes: the run has
  // diverged.
  Status apply(StepIndex step, double gradient_norm);

  // Whether gradients of this norm are used as they are: it is finite and needs no clipping.
  bool uses_as_is(double gradient_norm) const;

  // Takes memory for what a provisional step overwrites. ResourceExhausted, with the bytes asked for.
  Status allocate_rollback();
  // apply() with a norm that uses_as_is, after weights and moments were saved; gradients stay. Then one of the
  // two below. allocate_rollback() has been called.
  void apply_provisionally(StepIndex step);
  // Makes the gradients zero.
  void keep();
  // Weights, packed copies and moments have the bytes that they had before; gradients stay.
  void roll_back();

  struct Moments {
    kernels::TensorView first;
    kernels::TensorView second;
  };
  // Of each of the rank's parameters, in model order; empty tensors where they are another rank's. For checkpoints,
  // between steps.
  std::vector<Moments> moments() const;

  // Memory account: both moments.
  int64_t optimizer_bytes() const { return moments_.bytes(); }
  int64_t rollback_bytes() const { return rollback_.bytes(); }

 private:
  struct State {
    kernels::TensorView first{};  // empty: another rank has the moments
    kernels::TensorView second{};
    bool decays = true;
    bool is_here() const { return !first.empty(); }
    kernels::TensorView saved_weight{};  // where a step may be taken back
  };
  AdamW(const plan::TrainSpec& train, const ParameterStore& parameters, kernels::Operators& operators)
      : train_(train), parameters_(&parameters), operators_(&operators) {}
  Status allocate_moments(const std::vector<bool>& has_moments);

  void update(StepIndex step, double gradient_scale, bool keeps_gradients);
  void zero_gradients();
  kernels::TensorView saved_moments() const;

  plan::TrainSpec train_;
  const ParameterStore* parameters_;
  kernels::Operators* operators_;
  kernels::Slab moments_;
  kernels::Slab rollback_;           // moments, then weights
  std::vector<State> by_parameter_;  // beside parameters_->parameters()
  std::vector<SquaredNorm> squared_norms_;
};

}  // namespace penstock::worker
