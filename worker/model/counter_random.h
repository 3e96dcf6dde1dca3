// Random numbers by counter: the i-th number of a key is a pure function of (key, i).
//
// Everything here is integer arithmetic and +, -, *, / and sqrt of doubles, which IEEE 754 fixes to the bit;
// no library function takes part. So the same key gives the same numbers on every machine. Thread: any; pure.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace penstock::worker {

// Philox 4x32 with ten rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter);

// Key of a named stream under a seed.
uint64_t stream_key(int64_t seed, std::string_view name);

// Standard normal value at the quantile (bits + 1/2) / 2^32.
double normal_quantile(uint32_t bits);

}  // namespace penstock::worker
