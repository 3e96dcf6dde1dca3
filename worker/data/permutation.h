// A keyed permutation of [0, size): the order in which a run sees its samples, without a table.
//
// at(i) is a bijection for every size and key and a pure function of (key, size, i): any rank, any restart
// and any later step can ask for any place of the order on its own. Thread: any.
#pragma once

#include <cstdint>

namespace penstock::worker {

class Permutation {
 public:
  // Another seed, source or epoch is another order.
  struct Key {
    uint64_t seed = 0;
    uint64_t source = 0;
    uint64_t epoch = 0;
  };

  // size >= 1.
  Permutation(const Key& key, int64_t size);

  int64_t size() const { return size_; }
  int64_t at(int64_t position) const;  // 0 <= position < size

 private:
  uint64_t encipher(uint64_t value) const;

  uint64_t key_;
  int64_t size_;
  int half_bits_;  // the cipher permutes [0, 2^(2 half_bits)), the smallest such block that holds `size`
};

}  // namespace penstock::worker
