// Inverted dropout: output[i] = kept(i) ? x[i] / (1 - probability) : 0; output may be x.
//
// kept(i) <=> bits(i) >= round(probability x 2^32), where bits(i) is number i mod 4 of philox(key, i / 4): the
// mask is a function of (key, i) and is never stored. The backward is the same operation on the gradient, with
// the same key and probability. Source: Srivastava et al., "Dropout" (2014), with the scale at training time.
#pragma once

#include <cstdint>

#include "kernels/ops/expect.h"

namespace penstock::kernels::cpu {

class Context;
// 0 <= probability < 1.
void dropout(Context& context, TensorView x, double probability, uint64_t key, TensorView output);

}  // namespace penstock::kernels::cpu
