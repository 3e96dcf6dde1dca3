#include "kernels/ops/packed_weight.h"

namespace penstock::kernels {
namespace {

int64_t rounded_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

}  // namespace

void* PackedWeight::backward() const {
  return static_cast<char*>(data) + packed_elements(in, out, type) * size_bytes(type);
}

int64_t packed_elements(int64_t inner, int64_t columns, DataType type) {
  return rounded_up(inner, 64 / size_bytes(type)) * rounded_up(columns, 64);
}

int64_t packed_weight_bytes(int64_t out, int64_t in, DataType type) {
  return (packed_elements(in, out, type) + packed_elements(out, in, type)) * size_bytes(type);
}

}  // namespace penstock::kernels
