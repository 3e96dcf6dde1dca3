// Which characters a drawing may use, and how wide a text is on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace penstock::plan {

enum class Glyphs { Ascii, Unicode };

// Columns that UTF-8 text takes, one per code point; the drawings use no wide characters.
int display_width(std::string_view text);

// The text with control characters and what is not UTF-8 replaced by '?', so that a name or a reason cannot
// steer the terminal.
std::string printable(std::string_view text);

// The text where it fits into `columns`, else its beginning, ended by "..." where there is room for it.
std::string shortened(std::string_view text, int columns);

}  // namespace penstock::plan
