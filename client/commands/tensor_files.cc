#include "client/commands/tensor_files.h"

#include <filesystem>

namespace penstock::client {

namespace fs = std::filesystem;

std::vector<std::vector<plan::ParameterSpec>> cut_into_files(
    const std::vector<plan::ParameterSpec>& parameters, int64_t element_bytes, int64_t bytes_max) {
  std::vector<std::vector<plan::ParameterSpec>> files(1);
  int64_t bytes = 0;
  for (const plan::ParameterSpec& parameter : parameters) {
    const int64_t added = parameter.elements() * element_bytes;
    if (!files.back().empty() && bytes + added > bytes_max) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(parameter);
    bytes += added;
  }
  return files;
}

Status make_target(const std::string& path) {
  std::error_code failure;
  fs::create_directories(path, failure);
  if (failure) return unavailable("{} cannot be made: {}", path, failure.message());
  if (fs::is_empty(path, failure)) return ok_status();
  if (failure) return unavailable("{} cannot be read: {}", path, failure.message());
  return already_exists("{}: expected a new or empty folder, found files in it", path);
}

}  // namespace penstock::client
