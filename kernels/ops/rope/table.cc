#include "base/ieee_math.h"
#include "kernels/ops/rope/contract.h"

namespace penstock::kernels {
namespace {

RopeTable make_table(int64_t sequence_length, int64_t head_size, double theta) {
  const int64_t half = head_size / 2;
  const double log_theta = natural_log(theta);
  RopeTable table;
  table.cosine.resize(sequence_length * half);
  table.sine.resize(sequence_length * half);
  for (int64_t i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_size);
    const float frequency = 1.0f / static_cast<float>(exponential(log_theta * static_cast<double>(exponent)));
    for (int64_t position = 0; position < sequence_length; ++position) {
      const float angle = static_cast<float>(position) * frequency;
      table.cosine[position * half + i] = static_cast<float>(penstock::cosine(static_cast<double>(angle)));
      table.sine[position * half + i] = static_cast<float>(penstock::sine(static_cast<double>(angle)));
    }
  }
  return table;
}

}  // namespace

const RopeTable& RopeTables::get(int64_t sequence_length, int64_t head_size, double theta) {
  const std::tuple key(sequence_length, head_size, theta);
  auto found = tables_.find(key);
  if (found == tables_.end()) {
    found = tables_.emplace(key, make_table(sequence_length, head_size, theta)).first;
  }
  return found->second;
}

}  // namespace penstock::kernels
