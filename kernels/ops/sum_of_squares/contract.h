// Sum of squares in float64.
//
// Order: blocks of 65,536 elements, each summed in sixteen interleaved sums and their fixed tree; the blocks
// are added in order. It depends on the element count alone.
#pragma once

#include "kernels/ops/expect.h"

namespace penstock::kernels::cpu {

class Context;
double sum_of_squares(Context& context, TensorView x);

}  // namespace penstock::kernels::cpu
