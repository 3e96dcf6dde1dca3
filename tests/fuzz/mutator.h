// Seeded damage to texts, bytes and numbers, for tests that feed readers what nobody meant to write.
//
// The seed is printed by every test and comes from PENSTOCK_FUZZ_SEED when that is set, so that a failure
// replays:
//     PENSTOCK_FUZZ_SEED=123 build/debug/bin/penstock_tests_fuzz_test --gtest_filter=NAME
// Each test draws from its own stream of the seed: running one alone gives the same inputs as running all.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::fuzz {

class Mutator {
 public:
  // `stream` names the test. `dictionary` holds words that the reader knows.
  Mutator(std::string_view stream, std::vector<std::string> dictionary = {});

  uint64_t seed() const { return seed_; }

  // 0 <= result < limit; limit > 0.
  size_t below(size_t limit);
  bool one_in(size_t n) { return below(n) == 0; }
  // Small, huge, negative, near a power of two.
  int64_t number();

  // One to four pieces of damage: bits, bytes, words of the dictionary, ranges repeated, lost or moved, other
  // numbers. The result is at most `kLongest` bytes.
  std::string mutated(std::string text);

  static constexpr size_t kLongest = 64 << 10;

 private:
  void damage(std::string& text);
  void replace_number(std::string& text);

  uint64_t seed_;
  std::mt19937_64 random_;
  std::vector<std::string> dictionary_;
};

// Counts the rounds of one test: at most `rounds`, and no longer than the time that each test may take, so
// that the whole program ends within its bound under the slowest sanitizer. A replay sees the same rounds in
// the same order.
class Rounds {
 public:
  explicit Rounds(int rounds) : rounds_(rounds) {}
  bool next();
  int done() const { return done_; }

 private:
  static constexpr std::chrono::milliseconds kLongest{2000};
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  int rounds_;
  int done_ = 0;
};

}  // namespace penstock::fuzz
