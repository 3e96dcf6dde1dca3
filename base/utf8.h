// UTF-8 as Unicode defines it: no overlong form, no surrogate, nothing above U+10FFFF. What passes here,
// protobuf takes as a string.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

// Bytes of the character at `at` (below text.size()): 1 to 4, or 0 when none is encoded there.
size_t utf8_character_size(std::string_view text, size_t at);

// Bytes before the first that is not UTF-8; text.size() where all of it is.
size_t utf8_valid_prefix(std::string_view text);

// At most `most` bytes of the text: every byte that belongs to no character becomes '?', and the cut stands
// between two characters.
std::string utf8_cleaned(std::string_view text, size_t most = std::string_view::npos);

// The longest prefix of at most `most` bytes that does not end inside a character.
std::string_view utf8_cut(std::string_view text, size_t most);

// Characters (code points) of the text; a byte that belongs to none counts as one.
size_t utf8_length(std::string_view text);

// The first `most` characters of the text, all of it where it has fewer.
std::string_view utf8_first(std::string_view text, size_t most);

}  // namespace penstock
