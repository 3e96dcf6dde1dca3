// Fill with one value, and copy between tensors of one type and element count that do not overlap.
#pragma once

#include "kernels/ops/expect.h"

namespace penstock::kernels::cpu {

class Context;
void fill(Context& context, TensorView x, float value);
void copy(Context& context, TensorView source, TensorView target);

}  // namespace penstock::kernels::cpu
