// Sums of bytes that saturate at 2^63 - 1, and the bytes of tensors as the worker lays them out.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

#include "plan/spec/job_spec.h"

namespace penstock::plan::internal {

constexpr int64_t kWideBytes = 4;  // float32, and int32
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

inline int64_t plus(int64_t a, int64_t b) {
  return a > kMost - b ? kMost : a + b;
}
inline int64_t times(int64_t a, int64_t b) {
  return b != 0 && a > kMost / b ? kMost : a * b;
}
inline int64_t sum(std::initializer_list<int64_t> terms) {
  int64_t total = 0;
  for (const int64_t term : terms) total = plus(total, term);
  return total;
}
inline int64_t rounded_up(int64_t count, int64_t multiple) {
  return plus(count, multiple - 1) / multiple * multiple;
}

// Of activations, gradients of activations and packed weights.
inline int64_t narrow_bytes(const JobSpec& job) {
  return job.train.dtype == "bfloat16" ? 2 : 4;
}

inline int64_t tensor_bytes(int64_t elements, int64_t element_bytes = kWideBytes) {
  return rounded_up(times(elements, element_bytes), 64);
}

inline int64_t query_width(const ModelSpec& model) {
  return model.num_attention_heads * model.head_size();
}
inline int64_t projected_width(const ModelSpec& model) {
  return query_width(model) + 2 * model.num_key_value_heads * model.head_size();
}

}  // namespace penstock::plan::internal
