// A packed weight of one or several masters, for tests.
#pragma once

#include <utility>
#include <vector>

#include "kernels/device/slab.h"
#include "kernels/ops/testing/reference.h"

namespace penstock::kernels::testing {

class Packed {
 public:
  // Masters are [rows, in] each, one under the other.
  Packed(Operators& ops, std::initializer_list<TensorView> masters, DataType type = DataType::Float32) {
    weight_.in = masters.begin()->size(1);
    weight_.type = type;
    for (const TensorView& master : masters) weight_.out += master.size(0);
    memory_ = Slab::allocate(packed_weight_bytes(weight_.out, weight_.in, type), "packed weight").value();
    weight_.data = memory_.view().data;
    int64_t row = 0;
    for (const TensorView& master : masters) {
      ops.pack(master, {weight_, row});
      row += master.size(0);
    }
  }

  const PackedWeight& weight() const { return weight_; }
  Slab& memory() { return memory_; }

 private:
  PackedWeight weight_;
  Slab memory_;
};

}  // namespace penstock::kernels::testing
