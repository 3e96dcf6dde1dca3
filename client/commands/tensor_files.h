// The files that a model is written into.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/parameters.h"

namespace penstock::client {

// Consecutive parameters of at most so many bytes together; one that is larger is alone in its file.
std::vector<std::vector<plan::ParameterSpec>> cut_into_files(
    const std::vector<plan::ParameterSpec>& parameters, int64_t element_bytes, int64_t bytes_max);

// Makes the folder. AlreadyExists: it holds something, which is somebody's: nothing is overwritten.
Status make_target(const std::string& path);

}  // namespace penstock::client
