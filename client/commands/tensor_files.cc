#include "client/commands/tensor_files.h"

#include <filesystem>

#include "base/atomic_file.h"

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
  PENSTOCK_RETURN_IF_ERROR(make_folder(path));
  std::error_code failure;
  if (fs::is_empty(path, failure)) return ok_status();
  if (failure) return unavailable("{} cannot be read: {}", path, failure.message());
  return already_exists(
      "{}: expected a new or empty folder, found files in it (remove it if an earlier run was "
      "interrupted)",
      path);
}

}  // namespace penstock::client
