// Bounds of a job file that others need: those who hand it on without reading it, and those who offer its defaults.
#pragma once

#include <cstddef>

namespace penstock::plan {

constexpr size_t kLargestJobFileBytes = 1u << 20;
constexpr int kMostThreads = 256;  // compute threads of a rank

}  // namespace penstock::plan
