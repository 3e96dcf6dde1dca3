// Random numbers by counter (base/philox.h): the i-th number of a key is a pure function of (key, i).
//
// Everything here is integer arithmetic and +, -, *, / and sqrt of doubles, which IEEE 754 fixes to the bit;
// no library function takes part. So the same key gives the same numbers on every machine. Thread: any; pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace penstock::worker {

// Key of a named stream under a seed.
uint64_t stream_key(int64_t seed, std::string_view name);

// Where in a run a dropout mask is drawn; of nothing else, so that no split and no schedule can move it.
struct DropoutPlace {
  int64_t seed = 0;
  int64_t step = 0;
  int64_t microbatch = 0;
  int64_t layer = 0;
  enum class Branch : int64_t { Attention, FeedForward } branch = Branch::Attention;
};
uint64_t dropout_key(const DropoutPlace& place);

// Standard normal value at the quantile (bits + 1/2) / 2^32.
double normal_quantile(uint32_t bits);

}  // namespace penstock::worker
