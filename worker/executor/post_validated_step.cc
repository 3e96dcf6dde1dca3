#include "worker/executor/post_validated_step.h"

#include <cmath>
#include <utility>

namespace penstock::worker {

StatusOr<std::unique_ptr<PostValidatedStep>> PostValidatedStep::create(const Place& place,
                                                                       std::span<const int32_t> mine,
                                                                       SquaredNorms squared_norms,
                                                                       AdamW& optimizer, Endpoint& endpoint,
                                                                       const Clock& clock) {
  if (mine.empty()) return internal_error("post-validated steps: rank {} has no parameter", place.rank.value);
  const int64_t first = mine.front();
  int64_t expected = place.rank.value == 0 ? 0 : first;
  for (const int32_t parameter : mine) {
    if (parameter == expected++) continue;
    return internal_error("post-validated steps: expected parameter {} as the next of rank {}, found {}",
                          expected - 1, place.rank.value, parameter);
  }
  return std::unique_ptr<PostValidatedStep>(
      new PostValidatedStep(place, first, std::move(squared_norms), optimizer, endpoint, clock));
}

PostValidatedStep::PostValidatedStep(const Place& place, int64_t first_parameter, SquaredNorms squared_norms,
                                     AdamW& optimizer, Endpoint& endpoint, const Clock& clock)
    : place_(place),
      first_parameter_(first_parameter),
      squared_norms_(std::move(squared_norms)),
      optimizer_(&optimizer),
      endpoint_(&endpoint),
      clock_(&clock) {}

Status PostValidatedStep::end_step(StepIndex step) {
  PENSTOCK_RETURN_IF_ERROR(
      wait(up_));  // the rank before has validated the last step, or this one had not come here
  step_ = step;
  sum_ = {.step = step.value};
  if (!is_first()) PENSTOCK_RETURN_IF_ERROR(receive(before(), first_parameter_));
  PENSTOCK_RETURN_IF_ERROR(add_own_squares());
  pending_ = true;
  const double norm = std::sqrt(sum_.squares);
  if (is_last()) return end_last_step(norm);
  partial_ = sum_;
  PENSTOCK_ASSIGN_OR_RETURN(down_, endpoint_->post_send(behind(), &partial_, sizeof(partial_)));
  stepped_ = optimizer_->uses_as_is(norm);
  if (stepped_) optimizer_->apply_provisionally(step);
  return ok_status();
}

Status PostValidatedStep::add_own_squares() {
  PENSTOCK_ASSIGN_OR_RETURN(const std::span<const SquaredNorm> norms, squared_norms_());
  for (const SquaredNorm& norm : norms) {
    sum_.squares += norm.value;
    ++sum_.parameters;
  }
  return ok_status();
}

Status PostValidatedStep::end_last_step(double norm) {
  if (sum_.parameters != place_.model_parameters) {
    return data_loss("gradient norm of step {}: the ranks have {} parameters, the model {}", step_.value,
                     sum_.parameters, place_.model_parameters);
  }
  stands_ = optimizer_->uses_as_is(norm);
  PENSTOCK_RETURN_IF_ERROR(send_up());
  return optimizer_->apply(step_, norm);
}

StatusOr<StepVerdict> PostValidatedStep::validate() {
  if (!pending_) return internal_error("no step of rank {} waits to be validated", place_.rank.value);
  pending_ = false;
  if (is_last()) return StepVerdict{std::sqrt(sum_.squares), stands_};
  PENSTOCK_RETURN_IF_ERROR(receive(behind(), place_.model_parameters));
  PENSTOCK_RETURN_IF_ERROR(wait(down_));  // what came back is made of it
  PENSTOCK_RETURN_IF_ERROR(send_up());
  const double norm = std::sqrt(sum_.squares);
  const bool stands = optimizer_->uses_as_is(norm);
  if (!stands) {
    PENSTOCK_RETURN_IF_ERROR(take_anew(norm));
  } else if (stepped_) {
    optimizer_->keep();
  } else {
    return internal_error("the gradient norm of step {} is {}, and rank {} has seen a larger part of it",
                          step_.value, norm, place_.rank.value);
  }
  return StepVerdict{norm, stands};
}

Status PostValidatedStep::take_anew(double norm) {
  if (stepped_) optimizer_->roll_back();
  // The rank is in the next step by now.
  return with_context(optimizer_->apply(step_, norm), fmt::format("step {}", step_.value));
}

Status PostValidatedStep::settle() {
  return wait(up_);
}

Status PostValidatedStep::receive(RankIndex source, int64_t parameters) {
  PENSTOCK_ASSIGN_OR_RETURN(TransferId transfer, endpoint_->post_receive(source, &sum_, sizeof(sum_)));
  PENSTOCK_RETURN_IF_ERROR(wait(transfer));
  if (sum_.step == step_.value && sum_.parameters == parameters) return ok_status();
  return data_loss(
      "gradient norm of step {}: expected the sum of {} parameters from rank {}, found {} of step {}",
      step_.value, parameters, source.value, sum_.parameters, sum_.step);
}

Status PostValidatedStep::send_up() {
  if (is_first()) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(up_, endpoint_->post_send(before(), &sum_, sizeof(sum_)));
  return ok_status();
}

Status PostValidatedStep::wait(TransferId& transfer) {
  if (transfer.value < 0) return ok_status();
  const TimePoint start = clock_->now();
  const Status status = endpoint_->wait(std::exchange(transfer, TransferId{}));
  waited_ += clock_->now() - start;
  return status;
}

}  // namespace penstock::worker
