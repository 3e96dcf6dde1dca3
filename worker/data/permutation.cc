#include "worker/data/permutation.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace penstock::worker {
namespace {

// Small blocks mix little per round: with a half of one or two bits, sixteen rounds still give even orders.
constexpr uint64_t kRounds = 16;

// The finaliser of splitmix64: every output bit depends on every input bit.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Odd multipliers far apart: no two keys of one run meet.
uint64_t key_of(const Permutation::Key& key) {
  return mix(key.seed + 0x9e3779b97f4a7c15u) + key.source * 0xd1342543de82ef95u +
         key.epoch * 0xaf251af3b0f025b5u;
}

}  // namespace

Permutation::Permutation(const Key& key, int64_t size) : key_(key_of(key)), size_(size) {
  PENSTOCK_CHECK(size >= 1, "size {}", size);
  const int bits = std::bit_width(static_cast<uint64_t>(size - 1));
  half_bits_ = std::max(1, (bits + 1) / 2);
}

// A Feistel network is a bijection whatever its round function is.
uint64_t Permutation::encipher(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t next = left ^ (mix(key_ + (round << 56) + right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

// Walks the cycle until it is back inside: the block is at most four times as large, so a few steps on
// average.
int64_t Permutation::at(int64_t position) const {
  PENSTOCK_CHECK(position >= 0 && position < size_, "position {} of {}", position, size_);
  uint64_t value = encipher(static_cast<uint64_t>(position));
  while (value >= static_cast<uint64_t>(size_)) value = encipher(value);
  return static_cast<int64_t>(value);
}

}  // namespace penstock::worker
