#include "plan/render/bars.h"

#include <algorithm>
#include <cmath>

namespace penstock::plan {
namespace {

std::string repeated(std::string_view glyph, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += glyph;
  return text;
}

double clamped(double fraction) {
  if (!(fraction > 0)) return 0;
  return fraction < 1 ? fraction : 1;
}

}  // namespace

std::string progress_bar(double fraction, int width, Glyphs glyphs) {
  if (width < 3) return "";
  const int room = width - 2;
  // Rounded down: the bar is full only when the work is done.
  const int done = static_cast<int>(std::floor(clamped(fraction) * room));
  if (glyphs == Glyphs::Unicode) return "[" + repeated("█", done) + repeated("·", room - done) + "]";
  const bool tip = done < room;
  return "[" + repeated("=", done) + (tip ? ">" : "") + repeated(" ", room - done - (tip ? 1 : 0)) + "]";
}

std::string busy_bar(double busy_fraction, int width, Glyphs glyphs) {
  if (width < 3) return "";
  const int room = width - 2;
  const int busy = static_cast<int>(std::lround(clamped(busy_fraction) * room));
  const bool unicode = glyphs == Glyphs::Unicode;
  return "[" + repeated(unicode ? "█" : "#", busy) + repeated(unicode ? "░" : ".", room - busy) + "]";
}

std::string planned_bar(double measured, double planned, double largest, int width, Glyphs glyphs) {
  if (width < 3) return "";
  const int room = width - 2;
  const bool unicode = glyphs == Glyphs::Unicode;
  const auto columns = [&](double value) {
    return static_cast<int>(std::lround(clamped(largest > 0 ? value / largest : 0) * room));
  };
  const int filled = columns(measured);
  const int mark = planned > 0 ? std::max(0, columns(planned) - 1) : -1;
  std::string bar = "[";
  for (int i = 0; i < room; ++i) {
    if (i == mark) {
      bar += unicode ? "│" : "|";
    } else if (i < filled) {
      bar += unicode ? "█" : "#";
    } else {
      bar += " ";
    }
  }
  return bar + "]";
}

}  // namespace penstock::plan
