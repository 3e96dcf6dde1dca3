// Small questions about words that error messages ask.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// The candidate nearest to `word` by edit distance, or "" when none is nearer than half of the word's length.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

// "a, b, c and 4 more": at most `shown` of the items.
std::string list_cut(std::span<const std::string> items, size_t shown = 3);

// "a, b, c": all of them.
std::string join(std::span<const std::string> items, std::string_view separator = ", ");

// Two lower-case digits a byte: "00ff".
std::string hex(std::span<const uint8_t> bytes);

std::vector<std::string> split_on(std::string_view text, char separator);
std::string_view trim(std::string_view text);

}  // namespace penstock
