#include "plan/render/glyphs.h"

#include <algorithm>

namespace penstock::plan {

int display_width(std::string_view text) {
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  return static_cast<int>(text.size() -
                          static_cast<size_t>(std::count_if(text.begin(), text.end(), continues)));
}

std::string printable(std::string_view text) {
  std::string clean(text);
  for (char& c : clean) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) c = '?';
  }
  return clean;
}

}  // namespace penstock::plan
