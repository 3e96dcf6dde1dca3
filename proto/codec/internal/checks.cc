#include "proto/codec/internal/checks.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "base/utf8.h"

namespace penstock::codec {
namespace {

bool is_name_character(char c) {
  constexpr std::string_view kOthers = "-._:/@[]%";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kOthers.find(c) != std::string_view::npos;
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
          "\"" + utf8_cleaned(value, 64) + "\"");
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

}  // namespace penstock::codec
