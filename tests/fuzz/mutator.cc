#include "tests/fuzz/mutator.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <iostream>
#include <limits>

namespace penstock::fuzz {
namespace {

uint64_t seed_of_process() {
  static const uint64_t kSeed = [] {
    const char* replayed = std::getenv("PENSTOCK_FUZZ_SEED");
    return replayed != nullptr ? std::strtoull(replayed, nullptr, 10) : uint64_t{std::random_device{}()};
  }();
  return kSeed;
}

uint64_t fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

}  // namespace

Mutator::Mutator(std::string_view stream, std::vector<std::string> dictionary)
    : seed_(seed_of_process()), random_(seed_ ^ fnv1a(stream)), dictionary_(std::move(dictionary)) {
  std::cout << "seed: PENSTOCK_FUZZ_SEED=" << seed_ << std::endl;
}

size_t Mutator::below(size_t limit) {
  return static_cast<size_t>(random_() % limit);
}

int64_t Mutator::number() {
  constexpr std::array<int64_t, 12> kTelling = {-1,
                                                0,
                                                1,
                                                2,
                                                65535,
                                                65536,
                                                std::numeric_limits<int32_t>::max(),
                                                std::numeric_limits<int32_t>::min(),
                                                std::numeric_limits<int64_t>::max(),
                                                std::numeric_limits<int64_t>::min(),
                                                1 << 24,
                                                -2};
  switch (below(3)) {
    case 0:
      return static_cast<int64_t>(below(16));
    case 1:
      return kTelling[below(kTelling.size())];
    default:
      return static_cast<int64_t>(random_() >> below(64)) * (one_in(2) ? 1 : -1);
  }
}

std::string Mutator::mutated(std::string text) {
  // Half of the time only numbers change: the syntax stays whole, and what stands behind it is tried.
  const bool gentle = one_in(2);
  for (size_t pieces = 1 + below(gentle ? 2 : 4); pieces > 0; --pieces)
    gentle ? replace_number(text) : damage(text);
  if (text.size() > kLongest) text.resize(kLongest);
  return text;
}

void Mutator::damage(std::string& text) {
  if (text.empty()) text = " ";
  const size_t at = below(text.size());
  const size_t size = 1 + below(std::min<size_t>(text.size() - at, one_in(8) ? kLongest : 24));
  const std::string piece = text.substr(at, size);
  switch (below(8)) {
    case 0:
      text[at] = static_cast<char>(static_cast<unsigned char>(text[at]) ^ (1u << below(8)));
      return;
    case 1:
      text[at] = static_cast<char>(below(256));
      return;
    case 2:
      text.erase(at, size);
      return;
    case 3:
      text.insert(below(text.size()), piece);
      return;
    case 4:
      text.erase(at, size).insert(text.empty() ? 0 : below(text.size()), piece);
      return;
    case 5:
      text.resize(at);
      return;
    case 6:
      if (dictionary_.empty()) return text.insert(at, 1, static_cast<char>(below(256))), void();
      text.replace(at, one_in(2) ? 0 : size, dictionary_[below(dictionary_.size())]);
      return;
    default:
      replace_number(text);
  }
}

void Mutator::replace_number(std::string& text) {
  if (text.empty()) return;
  const auto start = text.begin() + static_cast<ptrdiff_t>(below(text.size()));
  const auto first = std::find_if(start, text.end(), is_digit);
  const auto last = std::find_if_not(first, text.end(), is_digit);
  text.replace(first, last, std::to_string(one_in(2) ? static_cast<int64_t>(below(8)) : number()));
}

bool Rounds::next() {
  if (done_ >= rounds_ || std::chrono::steady_clock::now() - start_ > kLongest) return false;
  ++done_;
  return true;
}

}  // namespace penstock::fuzz
