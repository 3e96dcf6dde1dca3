// JSON of files that others wrote: every key once in its object, and no deeper than the reader expects.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace penstock {

using Json = nlohmann::json;

// InvalidArgument: no JSON, with the byte where it ends to be; a key that stands twice in one object; objects and
// lists nested deeper than `deepest`.
StatusOr<Json> parse_strict_json(std::string_view text, int deepest);

// A value as an error message shows it: short whatever it is.
std::string shown_json(const Json& value);

}  // namespace penstock
