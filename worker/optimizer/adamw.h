// AdamW with decoupled weight decay over the parameters that one rank owns, with global-norm clipping. Two
// groups: the parameters that optimizer.no_decay names are not decayed.
//
// A step: every rank takes local_squared_norms(), the ranks exchange them, each forms gradient_norm() over
// all parameters in model order (so that all have the same bits), then apply(). Thread: the interpreter's.
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
  // `parameters` and `operators` outlive it. ResourceExhausted: no memory for the moments.
  static StatusOr<AdamW> create(const plan::TrainSpec& train, const ParameterStore& parameters,
                                kernels::Operators& operators);

  // In model order. Valid until the next call.
  std::span<const SquaredNorm> local_squared_norms();

  // Updates every weight of the rank from its gradient, renews its packed copy and makes the gradient zero, in one
  // pass over the memory. FailedPrecondition, and nothing changes, when the
  // norm is not finite: the run has diverged, and every rank sees the same norm.
  Status apply(StepIndex step, double gradient_norm);

  // Memory account: both moments.
  int64_t optimizer_bytes() const { return moments_.bytes(); }

 private:
  struct State {
    kernels::TensorView first;
    kernels::TensorView second;
    bool decays = true;
  };
  AdamW(const plan::TrainSpec& train, const ParameterStore& parameters, kernels::Operators& operators,
        kernels::Slab moments);

  plan::TrainSpec train_;
  const ParameterStore* parameters_;
  kernels::Operators* operators_;
  kernels::Slab moments_;
  std::vector<State> by_parameter_;  // beside parameters_->parameters()
  std::vector<SquaredNorm> squared_norms_;
};

}  // namespace penstock::worker
