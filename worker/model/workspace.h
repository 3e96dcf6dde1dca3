// Memory that a stage needs only while one action runs: shared by all the stages of a rank, which run one at
// a time.
//
// Nothing in it survives an action. Sized once for the widest item of the model.
// Thread: the interpreter's.
#pragma once

#include <array>
#include <cstdint>

#include "base/status.h"
#include "kernels/device/slab.h"
#include "kernels/tensor/tensor.h"
#include "plan/spec/job_spec.h"

namespace penstock::worker {

class Workspace {
 public:
  // ResourceExhausted: no memory, with the bytes asked for.
  static StatusOr<Workspace> create(const plan::JobSpec& job);

  int64_t bytes() const { return slab_.bytes(); }

  // T tokens of a microbatch, H hidden, I intermediate, Hq and Hkv heads of D.
  kernels::TensorView edge[2];             // [T, H]  residual or its gradient between two items of one stage
  kernels::TensorView normed;              // [T, H]  output of a norm
  kernels::TensorView normed_gradient;     // [T, H]
  kernels::TensorView residual_gradient;   // [T, H]  of h, inside a block
  kernels::TensorView activated;           // [T, I]  silu(gate) * up, then the gradient of gate
  kernels::TensorView activated_gradient;  // [T, I]
  kernels::TensorView up_gradient;         // [T, I]
  kernels::TensorView attended_gradient;   // [T, Hq * D]
  kernels::TensorView query_gradient;      // [T, Hq * D]
  kernels::TensorView key_gradient;        // [T, Hkv * D]
  kernels::TensorView value_gradient;      // [T, Hkv * D]
  kernels::TensorView inverse_rms;         // [T]     of a recomputed norm
  // With qk_norm: normed and rotated, then the gradients before the norm.
  kernels::TensorView query;              // [T, Hq * D]
  kernels::TensorView key;                // [T, Hkv * D]
  kernels::TensorView query_inverse_rms;  // [T * Hq]
  kernels::TensorView key_inverse_rms;    // [T * Hkv]
  // Where attention stays inside documents.
  kernels::TensorView document_starts;  // [T] i32

 private:
  Workspace() = default;
  kernels::Slab slab_;
};

}  // namespace penstock::worker
