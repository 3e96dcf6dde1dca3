// A scalar of the tree in the text that it was read from, for those who rewrite a job file in place.
#pragma once

#include <optional>
#include <string>

#include "plan/spec/internal/yaml_tree.h"

namespace penstock::plan {

// Bytes from scalar.offset that spell it, quotes with them; nothing when it does not stand on one line as a plain or
// quoted word.
std::optional<size_t> size_in_text(const std::string& yaml, const YamlNode& scalar);

std::string double_quoted(const std::string& text);

}  // namespace penstock::plan
