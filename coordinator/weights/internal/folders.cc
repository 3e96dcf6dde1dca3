#include "coordinator/weights/internal/folders.h"

#include <filesystem>

#include "base/atomic_file.h"

namespace penstock::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr int kMostEarlierFolders = 10'000;
constexpr const char* kMarkerPrefix = ".attempt-";

Status remove_markers(const std::string& directory) {
  std::error_code failure;
  for (fs::directory_iterator entry(directory, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (entry->path().filename().string().starts_with(kMarkerPrefix))
      PENSTOCK_RETURN_IF_ERROR(remove_file(entry->path().string()));
  }
  return failure ? folder_failed(directory, "read", failure) : ok_status();
}

}  // namespace

Status folder_failed(const std::string& path, const char* what, const std::error_code& failure) {
  return unavailable("{} cannot be {}: {}", path, what, failure.message());
}

Status remove_file(const std::string& path) {
  std::error_code failure;
  fs::remove(path, failure);
  return failure ? folder_failed(path, "removed", failure) : ok_status();
}

Status move_beside(const std::string& directory) {
  std::error_code failure;
  for (int number = 1; number <= kMostEarlierFolders; ++number) {
    const std::string target = fmt::format("{}-{}", directory, number);
    if (fs::exists(target, failure)) continue;
    fs::rename(directory, target, failure);
    return failure ? folder_failed(directory, "moved beside", failure) : ok_status();
  }
  return resource_exhausted("{}: {} folders of earlier jobs stand beside it; remove some", directory,
                            kMostEarlierFolders);
}

Status make_marked_folder(const WeightsPlace& place) {
  PENSTOCK_RETURN_IF_ERROR(make_folder(place.directory));
  PENSTOCK_RETURN_IF_ERROR(remove_markers(place.directory));
  return write_atomically(place.directory + "/" + place.marker, "");
}

}  // namespace penstock::coordinator
