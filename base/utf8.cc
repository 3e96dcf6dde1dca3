#include "base/utf8.h"

#include <algorithm>

namespace penstock {
namespace {

// How far the character at `at`, or the byte that belongs to none, reaches.
size_t step(std::string_view text, size_t at) {
  return std::max<size_t>(utf8_character_size(text, at), 1);
}

}  // namespace

size_t utf8_character_size(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (size > text.size() - at) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(at + 1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool beyond = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || beyond ? 0 : size;
}

size_t utf8_valid_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t size = utf8_character_size(text, at);
    if (size == 0) return at;
    at += size;
  }
  return at;
}

std::string utf8_cleaned(std::string_view text, size_t most) {
  std::string clean;
  clean.reserve(std::min(text.size(), most));
  size_t at = 0;
  while (at < text.size()) {
    const size_t size = utf8_character_size(text, at);
    const size_t taken = std::max<size_t>(size, 1);
    if (clean.size() + taken > most) break;
    clean += size == 0 ? std::string_view("?") : text.substr(at, size);
    at += taken;
  }
  return clean;
}

std::string_view utf8_cut(std::string_view text, size_t most) {
  if (text.size() <= most) return text;
  // A character has at most four bytes: what begins before the cut begins in the last three.
  for (size_t back = 1; back <= std::min<size_t>(3, most); ++back) {
    const size_t size = utf8_character_size(text, most - back);
    if (size > back) return text.substr(0, most - back);
    if (size > 0) break;
  }
  return text.substr(0, most);
}

size_t utf8_length(std::string_view text) {
  size_t length = 0;
  for (size_t at = 0; at < text.size(); at += step(text, at)) ++length;
  return length;
}

std::string_view utf8_first(std::string_view text, size_t most) {
  size_t at = 0;
  for (size_t count = 0; count < most && at < text.size(); ++count) at += step(text, at);
  return text.substr(0, at);
}

}  // namespace penstock
