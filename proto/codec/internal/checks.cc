#include "proto/codec/internal/checks.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace penstock::codec {
namespace {

bool is_name_character(char c) {
  constexpr std::string_view kOthers = "-._:/@[]%";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kOthers.find(c) != std::string_view::npos;
}

// Bytes of the UTF-8 character at `at`, or 0 when there is none.
size_t character_size(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || at + size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return 0;
  }
  const unsigned char second = byte(at + 1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool beyond = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return overlong || beyond ? 0 : size;
}

}  // namespace

std::string Checks::place(const std::string& field) const {
  return message_.empty() ? field : message_ + "." + field;
}

int64_t Checks::range(const std::string& field, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return value;
  if (ok()) status_ = invalid_argument("{}: expected {} to {}, found {}", place(field), least, most, value);
  return least;
}

void Checks::count(const std::string& field, size_t value, size_t most) {
  if (ok() && value > most) {
    status_ = invalid_argument("{}: expected at most {} entries, found {}", place(field), most, value);
  }
}

void Checks::equal(const std::string& field, int64_t value, int64_t expected, const std::string& because) {
  if (ok() && value != expected) {
    status_ = invalid_argument("{}: expected {} ({}), found {}", place(field), expected, because, value);
  }
}

void Checks::name(const std::string& field, const std::string& value, bool may_be_empty) {
  constexpr size_t kLongest = 255;
  const bool good = (may_be_empty || !value.empty()) && value.size() <= kLongest &&
                    std::all_of(value.begin(), value.end(), is_name_character);
  require(good, field, "a name of letters, digits and -._:/@[]%, at most 255 bytes",
          "\"" + clean_text(value, 64) + "\"");
}

void Checks::size(const std::string& field, const std::string& value, size_t most) {
  if (ok() && value.size() > most) {
    status_ = invalid_argument("{}: expected at most {} bytes, found {}", place(field), most, value.size());
  }
}

void Checks::seconds(const std::string& field, double value) {
  if (ok() && !(std::isfinite(value) && value >= 0)) {
    status_ = invalid_argument("{}: expected finite seconds of at least 0, found {}", place(field), value);
  }
}

void Checks::require(bool good, const std::string& field, const std::string& expected,
                     const std::string& found) {
  if (ok() && !good) status_ = invalid_argument("{}: expected {}, found {}", place(field), expected, found);
}

void Checks::nested(const std::string& field, const Status& status) {
  if (ok() && !status.ok()) status_ = with_context(status, place(field));
}

std::string clean_text(const std::string& text, size_t most) {
  std::string clean;
  clean.reserve(std::min(text.size(), most));
  size_t at = 0;
  while (at < text.size()) {
    const size_t size = character_size(text, at);
    const size_t taken = std::max<size_t>(size, 1);
    if (clean.size() + taken > most) break;
    if (size == 0) {
      clean += '?';
    } else {
      clean.append(text, at, size);
    }
    at += taken;
  }
  return clean;
}

}  // namespace penstock::codec
