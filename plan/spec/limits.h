// How large a job file may be, for those who hand it on without reading it.
#pragma once

#include <cstddef>

namespace penstock::plan {

constexpr size_t kLargestJobFileBytes = 1u << 20;

}  // namespace penstock::plan
