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

  // Of the activations' type unless said otherwise. T tokens of a microbatch, H hidden, I the widest intermediate, Hq and Hkv
  // heads of D.
  kernels::TensorView edge[2];             // [T, H]   gradient of the residual between two items of one stage
  kernels::TensorView normed;              // [T, H]   output of a norm; in a backward what routed experts add
  kernels::TensorView normed_gradient;     // [T, H]
  kernels::TensorView residual_gradient;   // [T, H]   of h, inside a block
  kernels::TensorView activated;           // [T, I]   silu(gate) * up
  kernels::TensorView activated_gradient;  // [T, I]
  kernels::TensorView attended_gradient;   // [T, Hq * D]
  kernels::TensorView targets;             // [T]      i32
  // With experts: R rows of the microbatch's tokens, L rows at this rank's experts, K choices of a token, Ie their
  // intermediate. Of the parts of a microbatch (job.expert_parts()) one after another.
  kernels::TensorView expert_rows;              // [R, H]   outputs; gradients of outputs
  kernels::TensorView expert_payload_gradient;  // [R, H]
  kernels::TensorView expert_weighted;          // [L, Ie]
  kernels::TensorView expert_row_weight;        // [R]      f32
  kernels::TensorView expert_row_gradient;      // [R]      f32
  kernels::TensorView choice_gradient;          // [T, K]   f32
  // Where ranks share experts out (worker/collectives/row_exchange.h). Of rows as they arrive and leave:
  kernels::TensorView arrived_rows;     // [L, H]
  kernels::TensorView arrived_values;   // [L]  f32
  kernels::TensorView arrival_row;      // [L]  i32
  kernels::TensorView arrival_source;   // [L]  i32
  kernels::TensorView arrival_offsets;  // [parts x (experts here + 1)]  i32
  // and of one part's rows, as the experts take them:
  kernels::TensorView rows_here;          // [L / parts, H]  outputs; gradients of the payload
  kernels::TensorView row_weight_here;    // [L / parts]     f32
  kernels::TensorView row_gradient_here;  // [L / parts]     f32
  // With dropout.
  kernels::TensorView branch_gradient[2];  // [T, H]   of what MLP and attention add to the residual
  // With qk_norm: normed and rotated.
  kernels::TensorView query;              // [T, Hq * D]
  kernels::TensorView key;                // [T, Hkv * D]
  kernels::TensorView query_inverse_rms;  // [T * Hq]  f32, one a token across heads
  kernels::TensorView key_inverse_rms;    // [T * Hkv] f32, the same
  // Where attention stays inside documents.
  kernels::TensorView document_starts;  // [T] i32

 private:
  Workspace() = default;
  kernels::Slab slab_;
};

}  // namespace penstock::worker
