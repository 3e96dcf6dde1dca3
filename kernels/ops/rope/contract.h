// Rotary position embedding (Su et al., 2021), in Hugging Face's layout: element i of a head's first half
// turns with element i of its second half.
//
//   angle = position x theta^(-2 i / head_size), i < head_size / 2
//   first'  = first cos(angle) - second sin(angle)
//   second' = second cos(angle) + first sin(angle)
//   backward: the rotation by -angle
//
// The angles are rounded to float32 as Hugging Face's are (frequency, then product); sine and cosine are
// computed in float64 and rounded once.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "kernels/ops/expect.h"

namespace penstock::kernels {

struct RopeShape {
  int64_t tokens = 0;
  int64_t sequence_length = 0;
  int64_t heads = 0;
  int64_t head_size = 0;
};

// x [T, heads x head_size], some columns of a wider matrix perhaps; T is whole sequences.
inline RopeShape rope_shape(const TensorView& x, int64_t sequence_length, int64_t head_size) {
  PENSTOCK_CHECK(x.rank() == 2 && head_size > 0 && head_size % 2 == 0 && x.size(1) % head_size == 0,
                 "rope over rows of {} elements in heads of {}", x.size(1), head_size);
  PENSTOCK_CHECK(sequence_length > 0 && x.size(0) % sequence_length == 0,
                 "rope over {} tokens in sequences of {}", x.size(0), sequence_length);
  return {x.size(0), sequence_length, x.size(1) / head_size, head_size};
}

struct RopeTable {
  std::vector<float> cosine;  // [sequence_length, head_size / 2]
  std::vector<float> sine;    // the same
};

// One table per (sequence length, head size, theta), made at first use.
class RopeTables {
 public:
  const RopeTable& get(int64_t sequence_length, int64_t head_size, double theta);

 private:
  std::map<std::tuple<int64_t, int64_t, double>, RopeTable> tables_;
};

enum class Rotation { Forward, Backward };

namespace cpu {
class Context;
void rope(Context& context, const RopeTable& table, TensorView x, int64_t sequence_length, int64_t head_size,
          Rotation rotation);
}  // namespace cpu

}  // namespace penstock::kernels
