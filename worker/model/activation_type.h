// The element type of activations, their gradients and boundary tensors: train.dtype.
#pragma once

#include "kernels/tensor/tensor.h"
#include "plan/spec/job_spec.h"

namespace penstock::worker {

inline kernels::DataType activation_type(const plan::JobSpec& job) {
  return job.train.dtype == "bfloat16" ? kernels::DataType::BFloat16 : kernels::DataType::Float32;
}

}  // namespace penstock::worker
