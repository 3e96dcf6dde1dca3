#include "base/token_files/npy_header.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"

namespace penstock {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMostHeaderBytes = 1 << 16;  // numpy's own are of 128

struct Descr {
  TokenType type;
  std::string_view text;
};
constexpr Descr kDescrs[] = {{TokenType::UInt16, "<u2"},
                             {TokenType::UInt32, "<u4"},
                             {TokenType::Int32, "<i4"},
                             {TokenType::Int64, "<i8"}};

// A piece of the file as an error message shows it.
std::string shown(std::string_view text) {
  std::string cleaned = utf8_cleaned(text, 60);
  for (char& c : cleaned) c = std::iscntrl(static_cast<unsigned char>(c)) != 0 ? '?' : c;
  return cleaned;
}

// The dictionary's text, word by word.
class Words {
 public:
  explicit Words(std::string_view text) : text_(text) {}

  bool take(char wanted) {
    skip_spaces();
    if (text_.empty() || text_.front() != wanted) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::optional<std::string_view> take_quoted() {
    skip_spaces();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) return std::nullopt;
    const size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view word = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return word;
  }
  std::optional<int64_t> take_number() {
    skip_spaces();
    int64_t value = 0;
    const auto [end, failure] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (failure != std::errc() || value < 0) return std::nullopt;
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return value;
  }
  bool take_word(std::string_view word) {
    skip_spaces();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  bool at_end() {
    skip_spaces();
    return text_.empty();
  }

 private:
  void skip_spaces() {
    while (!text_.empty() && std::isspace(static_cast<unsigned char>(text_.front())) != 0)
      text_.remove_prefix(1);
  }

  std::string_view text_;
};

struct Dictionary {
  std::optional<std::string_view> descr;
  bool has_order = false;
  std::optional<int64_t> dimensions;
  int64_t first_dimension = 0;
};

bool read_shape(Words& words, Dictionary& found) {
  if (!words.take('(')) return false;
  int64_t dimensions = 0;
  while (!words.take(')')) {
    const std::optional<int64_t> size = words.take_number();
    if (!size) return false;
    if (dimensions == 0) found.first_dimension = *size;
    ++dimensions;
    if (!words.take(',')) {
      if (!words.take(')')) return false;
      break;
    }
  }
  found.dimensions = dimensions;
  return true;
}

bool read_value(std::string_view key, Words& words, Dictionary& found) {
  if (key == "shape") return read_shape(words, found);
  if (key == "descr") {
    found.descr = words.take_quoted();
    return found.descr.has_value();
  }
  found.has_order = key == "fortran_order";  // which says nothing about one dimension
  return found.has_order && (words.take_word("True") || words.take_word("False"));
}

bool read_dictionary(std::string_view text, Dictionary& found) {
  Words words(text);
  if (!words.take('{')) return false;
  while (!words.take('}')) {
    const std::optional<std::string_view> key = words.take_quoted();
    if (!key || !words.take(':') || !read_value(*key, words, found)) return false;
    if (!words.take(',')) {
      if (!words.take('}')) return false;
      break;
    }
  }
  return words.at_end() && found.descr && found.has_order && found.dimensions;
}

// Where the dictionary stands in the file.
struct Extent {
  size_t begin = 0;
  size_t size = 0;
};
StatusOr<Extent> extent_of_dictionary(std::span<const uint8_t> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic)) {
    return invalid_argument("expected a .npy file, found one that does not begin with \\x93NUMPY");
  }
  if (file.size() < 12) return data_loss("expected a .npy header, found only {} bytes", file.size());
  const int major = file[6];
  if (major < 1 || major > 3) {
    return invalid_argument("expected .npy version 1, 2 or 3, found {}.{}", major, int{file[7]});
  }
  const auto byte = [&](size_t index) { return size_t{file[index]} << (8 * (index - 8)); };
  Extent extent;
  extent.begin = major == 1 ? 10 : 12;
  extent.size = major == 1 ? byte(8) + byte(9) : byte(8) + byte(9) + byte(10) + byte(11);
  if (extent.size > kMostHeaderBytes) {
    return invalid_argument("expected a .npy header of at most {} bytes, found {}", kMostHeaderBytes,
                            extent.size);
  }
  if (extent.begin + extent.size > file.size()) {
    return data_loss("expected a .npy header of {} bytes, found only {}", extent.begin + extent.size,
                     file.size());
  }
  return extent;
}

}  // namespace

StatusOr<NpyHeader> read_npy_header(std::span<const uint8_t> file) {
  PENSTOCK_ASSIGN_OR_RETURN(const Extent extent, extent_of_dictionary(file));
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + extent.begin, extent.size);
  Dictionary found;
  if (!read_dictionary(text, found)) {
    return invalid_argument("expected a .npy header of descr, fortran_order and shape, found {}",
                            shown(text));
  }
  const auto wanted = [&](const Descr& descr) { return descr.text == *found.descr; };
  const auto* const descr = std::find_if(std::begin(kDescrs), std::end(kDescrs), wanted);
  if (descr == std::end(kDescrs)) {
    return invalid_argument(
        "expected a .npy array of little-endian uint16, uint32, int32 or int64, found descr {}",
        shown(*found.descr));
  }
  if (*found.dimensions != 1) {
    return invalid_argument("expected a .npy array of 1 dimension, found {}", *found.dimensions);
  }
  NpyHeader header{.type = descr->type,
                   .tokens = found.first_dimension,
                   .bytes = static_cast<int64_t>(extent.begin + extent.size)};
  const int64_t left = static_cast<int64_t>(file.size()) - header.bytes;
  if (left % bytes_of(header.type) != 0 || left / bytes_of(header.type) != header.tokens) {
    return data_loss("expected {} tokens of {} bytes behind the .npy header, found {} bytes", header.tokens,
                     bytes_of(header.type), left);
  }
  return header;
}

std::string make_npy_header(TokenType type, int64_t tokens) {
  const auto wanted = [&](const Descr& descr) { return descr.type == type; };
  const auto* const descr = std::find_if(std::begin(kDescrs), std::end(kDescrs), wanted);
  PENSTOCK_CHECK(descr != std::end(kDescrs), "{} in a .npy file", name_of(type));
  std::string header(kMagic);
  header += std::string{'\x01', '\0', static_cast<char>(kNpyHeaderBytes - 10), '\0'};
  header += fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({},), }}", descr->text, tokens);
  header.resize(kNpyHeaderBytes - 1, ' ');
  return header + '\n';
}

}  // namespace penstock
