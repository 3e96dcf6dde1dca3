#include "worker/optimizer/adamw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/check.h"
#include "worker/model/layout.h"
#include "worker/optimizer/learning_rate.h"

namespace penstock::worker {

StatusOr<double> GradientNorm::of(std::span<const SquaredNorm> squared_norms) {
  const auto parameters = static_cast<int64_t>(values_.size());
  std::fill(values_.begin(), values_.end(), std::nullopt);
  for (const SquaredNorm& norm : squared_norms) {
    if (norm.parameter < 0 || norm.parameter >= parameters) {
      return internal_error("gradient norm: parameter {} of {}", norm.parameter, parameters);
    }
    std::optional<double>& place = values_[static_cast<size_t>(norm.parameter)];
    if (place) return internal_error("gradient norm: parameter {} comes from two ranks", norm.parameter);
    place = norm.value;
  }
  double sum = 0;
  for (size_t i = 0; i < values_.size(); ++i) {
    if (!values_[i]) return internal_error("gradient norm: parameter {} of {} is missing", i, parameters);
    sum += *values_[i];
  }
  return std::sqrt(sum);
}

double clipping_coefficient(double norm, double limit) {
  constexpr double kTiny = 1e-6;  // a norm of zero must not divide
  return limit == 0 ? 1 : std::min(1.0, limit / (norm + kTiny));
}

StatusOr<AdamW> AdamW::create(const plan::TrainSpec& train, const ParameterStore& parameters,
                              kernels::Operators& operators, const std::vector<bool>& has_moments) {
  AdamW optimizer(train, parameters, operators);
  PENSTOCK_RETURN_IF_ERROR(optimizer.allocate_moments(has_moments));
  return optimizer;
}

Status AdamW::allocate_moments(const std::vector<bool>& has_moments) {
  const std::span<const Parameter> parameters = parameters_->parameters();
  PENSTOCK_CHECK(has_moments.empty() || has_moments.size() == parameters.size(), "{} of {} parameters",
                 has_moments.size(), parameters.size());
  Layout layout;
  std::vector<std::array<Place, 2>> places(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!has_moments.empty() && !has_moments[i]) continue;
    for (Place& place : places[i]) place = place_of(parameters[i].spec, layout);
  }
  PENSTOCK_ASSIGN_OR_RETURN(moments_, kernels::Slab::allocate(layout.bytes(), "optimizer"));
  for (size_t i = 0; i < parameters.size(); ++i) {
    State& state = by_parameter_.emplace_back();
    state.decays = plan::decays(train_.optimizer, parameters[i].spec.name);
    if (!has_moments.empty() && !has_moments[i]) continue;
    state.first = places[i][0].in(moments_.view().data);
    state.second = places[i][1].in(moments_.view().data);
  }
  return ok_status();
}

std::vector<AdamW::Moments> AdamW::moments() const {
  std::vector<Moments> moments;
  for (const State& state : by_parameter_) moments.push_back({state.first, state.second});
  return moments;
}

std::span<const SquaredNorm> AdamW::local_squared_norms() {
  squared_norms_.clear();
  for (const Parameter& parameter : parameters_->parameters()) {
    squared_norms_.push_back({parameter.spec.index, operators_->sum_of_squares(parameter.gradient)});
  }
  return squared_norms_;
}

Status AdamW::apply(StepIndex step, double norm) {
  if (!std::isfinite(norm)) {
    if (train_.optimizer.nonfinite == "skip") {
      zero_gradients();
      return ok_status();
    }
    return failed_precondition("the gradient norm is {}: the run has diverged; lower lr or warm up longer",
                               std::isnan(norm) ? "nan" : "inf");  // the sign of a nan says nothing
  }
  update(step, clipping_coefficient(norm, train_.optimizer.clip_grad_norm), false);
  return ok_status();
}

bool AdamW::uses_as_is(double norm) const {
  return std::isfinite(norm) && clipping_coefficient(norm, train_.optimizer.clip_grad_norm) == 1;
}

void AdamW::update(StepIndex step, double gradient_scale, bool keeps_gradients) {
  kernels::AdamWStep update{.learning_rate = learning_rate(step, train_),
                            .beta1 = train_.optimizer.betas[0],
                            .beta2 = train_.optimizer.betas[1],
                            .epsilon = train_.optimizer.eps,
                            .gradient_scale = gradient_scale,
                            .step = step.value + 1,
                            .keeps_gradient = keeps_gradients};
  for (size_t i = 0; i < by_parameter_.size(); ++i) {
    const Parameter& parameter = parameters_->parameters()[i];
    if (!by_parameter_[i].is_here()) {
      if (!keeps_gradients) operators_->fill(parameter.gradient, 0);
      continue;
    }
    update.weight_decay = by_parameter_[i].decays ? train_.optimizer.weight_decay : 0;
    operators_->adamw(parameter.weight, parameter.gradient, by_parameter_[i].first, by_parameter_[i].second,
                      update, parameter.packed);
  }
}

namespace {

kernels::TensorView as_vector(kernels::SlabView slab, int64_t bytes) {
  return {slab.data, kernels::DataType::Float32, {bytes / 4}};
}

}  // namespace

Status AdamW::allocate_rollback() {
  Layout layout;
  layout.place(kernels::DataType::Float32, {moments_.bytes() / 4});
  std::vector<Place> weights;
  for (const Parameter& parameter : parameters_->parameters())
    weights.push_back(place_of(parameter.spec, layout));
  PENSTOCK_ASSIGN_OR_RETURN(rollback_, kernels::Slab::allocate(layout.bytes(), "rollback of the optimizer"));
  for (size_t i = 0; i < weights.size(); ++i)
    by_parameter_[i].saved_weight = weights[i].in(rollback_.view().data);
  return ok_status();
}

kernels::TensorView AdamW::saved_moments() const {
  return as_vector(rollback_.view(), moments_.bytes());
}

void AdamW::apply_provisionally(StepIndex step) {
  PENSTOCK_CHECK(rollback_.bytes() > 0, "a provisional step without memory for its rollback");
  operators_->copy(as_vector(moments_.view(), moments_.bytes()), saved_moments());
  for (size_t i = 0; i < by_parameter_.size(); ++i)
    operators_->copy(parameters_->parameters()[i].weight, by_parameter_[i].saved_weight);
  update(step, 1, true);
}

void AdamW::keep() {
  zero_gradients();
}

void AdamW::roll_back() {
  operators_->copy(saved_moments(), as_vector(moments_.view(), moments_.bytes()));
  for (size_t i = 0; i < by_parameter_.size(); ++i) {
    const Parameter& parameter = parameters_->parameters()[i];
    operators_->copy(by_parameter_[i].saved_weight, parameter.weight);
    if (parameter.packed.weight.data != nullptr) operators_->pack(parameter.weight, parameter.packed);
  }
}

void AdamW::zero_gradients() {
  for (const Parameter& parameter : parameters_->parameters()) operators_->fill(parameter.gradient, 0);
}

}  // namespace penstock::worker
