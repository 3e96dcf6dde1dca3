// A matrix product that the mathematics of a layer asks for.
#pragma once

#include <cstdint>
#include <string>

namespace penstock::perf {

// output [rows, columns] = left [rows, inner] x right [inner, columns], `count` times.
struct Product {
  std::string name;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  int64_t count = 0;
  enum class Kind : uint8_t {
    Weight,          // right is a weight: in the best layout, made once a step and not counted
    WeightGradient,  // left comes transposed, and the float32 result is added to
    Activation,      // both are activations, the float32 result is written (attention's scores)
  } kind = Kind::Weight;
  bool wide_result = false;  // float32 also in bfloat16: logits
};

inline double flops(const Product& product) {
  return 2.0 * static_cast<double>(product.rows * product.columns * product.inner * product.count);
}

}  // namespace penstock::perf
