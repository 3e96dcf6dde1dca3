// Chooses the element type of an operation: float32 or bfloat16, of activations and their gradients.
#pragma once

#include "base/check.h"
#include "kernels/tensor/tensor.h"

namespace penstock::kernels::cpu {

// Calls body(Element{}) with float or BFloat16.
template <typename Body>
void with_element(DataType type, const Body& body) {
  switch (type) {
    case DataType::Float32:
      return body(float{});
    case DataType::BFloat16:
      return body(BFloat16{});
    case DataType::Int32:
      break;
  }
  PENSTOCK_CHECK(false, "elements of type {}", static_cast<int>(type));
}

template <typename Element>
Element* data(const TensorView& view);
template <>
inline float* data<float>(const TensorView& view) {
  return view.f32();
}
template <>
inline BFloat16* data<BFloat16>(const TensorView& view) {
  return view.bf16();
}

}  // namespace penstock::kernels::cpu
