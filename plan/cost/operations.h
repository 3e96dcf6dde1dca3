// What the items of a model compute and move: floating-point operations, and bytes that pass between a rank and its
// memory, of one microbatch on one rank of a pipeline. Counted from the job, never measured: over the rates of a device
// they are times whose ratios say how to cut a model that has not run yet.
//
// T tokens of a microbatch in sequences of S; H hidden, A heads and K key/value heads of D, I intermediate, V vocabulary;
// e bytes of an activation, w weights of the item on the rank. A product [T, in] x [in, out] takes 2 T in out.
//
//   operations   forward                                            backward
//   embedding    0                                                  0
//   block        products q, k, v, o  2 T H (2 A + 2 K) D           twice, for the input's and the weight's gradient
//                attention            2 T (S + 1) A D               5/2 times: scores are formed again, and three gradients
//                MLP gate, up, down   6 T H I                       twice
//     experts    router 2 T H E, 6 R H J over R rows of J each,     twice
//                R = T choices, or the experts' capacities; shared ones 6 T H J shared
//   head         logits, their gradient's two products  6 T H V     0: the forward has made all of them
//
//   bytes        forward                                            backward
//   embedding    rows read and written  T H (4 + e)                 gradients T H (8 + e)
//   block        packed weights e w, its activation slot twice      weights e w, gradients 8 w, the slot three times
//   head         weights 2 e w, gradients 8 w, slot twice,          the slot twice
//                logits T V (12 + 3 e): written, read twice, gradient written and read twice
// An item that is recomputed has its forward in its backward once more. In every step the optimizer moves 32 + 2 e bytes a
// weight: masters and moments read and written, gradients read and cleared, both packed operands written.
//
// Sources: products and attention as "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM"
// (Narayanan et al., 2021, appendix) counts them, but attention inside its causal half; 5/2 is "FlashAttention-2" (Dao,
// 2023, section 4.1); about 6 a parameter and token is "Scaling Laws for Neural Language Models" (Kaplan et al., 2020,
// section 2.1). Bytes are counted from what this service's blocks and head do (plan/cost/memory.h, slots).
// Not counted: norms, RoPE, softmax and SwiGLU as operations (their bytes are), and messages between ranks.
//
// Experts share out a microbatch's rows evenly here. Pure; any thread.
#pragma once

#include "plan/spec/job_spec.h"

namespace penstock::plan {

struct Operations {
  double flops = 0;
  double bytes = 0;

  Operations& operator+=(const Operations& other);
};

struct ItemOperations {
  Operations forward;
  Operations backward;
  Operations update;  // of the optimizer, once a step
};

// What a device does in a second: a single core of a server, where nothing is said.
struct DeviceRates {
  double flops_per_second = 1e11;
  double bytes_per_second = 2e10;
};

// Products are bound by the one rate, what stands between them by the other, and they run one after the other.
double seconds_of(const Operations& operations, const DeviceRates& rates);

// Of one of the job's items; what the job recomputes counts. Parallel degrees are the job's.
ItemOperations operations_of(const JobSpec& job, const Item& item);

}  // namespace penstock::plan
