#include "coordinator/weights/weights_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include "base/atomic_file.h"
#include "base/safetensors/folder.h"
#include "plan/interop/hugging_face.h"
#include "plan/spec/parameters.h"

namespace penstock::coordinator {
namespace {

namespace fs = std::filesystem;

constexpr int kMostEarlierFolders = 10'000;

Status failed(const std::string& path, const char* what, const std::error_code& failure) {
  return unavailable("{} cannot be {}: {}", path, what, failure.message());
}

Status remove(const std::string& path) {
  std::error_code failure;
  fs::remove(path, failure);
  return failure ? failed(path, "removed", failure) : ok_status();
}

Status move_beside(const std::string& directory) {
  std::error_code failure;
  for (int number = 1; number <= kMostEarlierFolders; ++number) {
    const std::string target = fmt::format("{}-{}", directory, number);
    if (fs::exists(target, failure)) continue;
    fs::rename(directory, target, failure);
    return failure ? failed(directory, "moved beside", failure) : ok_status();
  }
  return resource_exhausted("{}: {} folders of earlier weights stand beside it; remove some", directory,
                            kMostEarlierFolders);
}

// Files of ranks and markers: of attempts that came to nothing.
Status remove_leftovers(const std::string& directory) {
  std::error_code failure;
  for (fs::directory_iterator entry(directory, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("rank-") || name.starts_with(".attempt-"))
      PENSTOCK_RETURN_IF_ERROR(remove(entry->path().string()));
  }
  return failure ? failed(directory, "read", failure) : ok_status();
}

// tensor -> file name, of all ranks.
StatusOr<std::map<std::string, std::string>> weight_map_of(const std::string& directory, int ranks) {
  std::map<std::string, std::string> map;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = tensor_file_name("rank", rank, ranks);
    PENSTOCK_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(directory + "/" + name));
    for (const TensorEntry& tensor : file.tensors()) {
      const auto [place, fresh] = map.emplace(tensor.name, name);
      if (!fresh) {
        return invalid_argument("{}: tensor {}: expected from one rank, found in {} too", file.path(),
                                tensor.name, place->second);
      }
    }
  }
  return map;
}

}  // namespace

Status prepare_weights_folder(const WeightsPlace& place) {
  std::error_code failure;
  if (fs::exists(place.directory + "/" + kTensorIndexFile, failure))
    PENSTOCK_RETURN_IF_ERROR(move_beside(place.directory));
  fs::create_directories(place.directory, failure);
  if (failure) return failed(place.directory, "made", failure);
  PENSTOCK_RETURN_IF_ERROR(remove_leftovers(place.directory));
  return write_atomically(place.directory + "/" + place.marker, "");
}

Status commit_weights_folder(const WeightsPlace& place, const plan::ModelSpec& model, int ranks) {
  PENSTOCK_ASSIGN_OR_RETURN(const auto map, weight_map_of(place.directory, ranks));
  int64_t total_size = 0;
  std::vector<ExpectedTensor> expected;
  for (const plan::ParameterSpec& spec : plan::model_parameters(model)) {
    expected.push_back({spec.stored_name, spec.shape});
    total_size += spec.elements() * int64_t{sizeof(float)};
  }
  PENSTOCK_RETURN_IF_ERROR(write_atomically(place.directory + "/" + plan::kHuggingFaceConfigFile,
                                            plan::model_to_hugging_face(model, "float32")));
  PENSTOCK_RETURN_IF_ERROR(remove(place.directory + "/" + place.marker));
  const std::string index = place.directory + "/" + kTensorIndexFile;
  PENSTOCK_RETURN_IF_ERROR(write_atomically(index, format_tensor_index(map, total_size)));
  // As every reader will see it.
  const StatusOr<TensorFolder> whole = TensorFolder::open(place.directory);
  const Status checked = whole.ok() ? whole->check(expected) : whole.status();
  if (!checked.ok()) PENSTOCK_RETURN_IF_ERROR(remove(index));
  return checked;
}

Status discard_weights_folder(const WeightsPlace& place) {
  return remove(place.directory + "/" + kTensorIndexFile);
}

}  // namespace penstock::coordinator
