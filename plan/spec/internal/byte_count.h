// Counts of bytes as a job file spells them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::plan {

// "80GB", "512MiB", "1000": whole bytes from 1 to 2^60 with an optional unit. Nothing for any other text.
std::optional<int64_t> byte_count(const std::string& text);

}  // namespace penstock::plan
