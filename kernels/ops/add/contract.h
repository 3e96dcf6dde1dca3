// Element-wise sum: output = a + b, all of one shape; output may be a or b.
#pragma once

#include "kernels/ops/expect.h"

namespace penstock::kernels::cpu {

class Context;
void add(Context& context, TensorView a, TensorView b, TensorView output);

}  // namespace penstock::kernels::cpu
