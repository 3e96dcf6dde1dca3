#include "plan/render/glyphs.h"

#include <algorithm>

#include "base/utf8.h"

namespace penstock::plan {

int display_width(std::string_view text) {
  return static_cast<int>(utf8_length(text));
}

std::string printable(std::string_view text) {
  std::string clean = utf8_cleaned(text);
  for (char& c : clean) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) c = '?';
  }
  return clean;
}

std::string shortened(std::string_view text, int columns) {
  constexpr std::string_view kCut = "...";
  if (display_width(text) <= columns) return std::string(text);
  const auto room = static_cast<size_t>(std::max(columns, 0));
  if (room <= kCut.size()) return std::string(utf8_first(text, room));
  return std::string(utf8_first(text, room - kCut.size())) + std::string(kCut);
}

}  // namespace penstock::plan
