#include "coordinator/weights/weights_folder.h"

#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include "base/atomic_file.h"
#include "base/safetensors/folder.h"
#include "coordinator/weights/internal/folders.h"
#include "plan/interop/hugging_face.h"
#include "plan/spec/parameters.h"

namespace penstock::coordinator {
namespace {

namespace fs = std::filesystem;

// Files of ranks: of attempts that came to nothing.
Status remove_leftovers(const std::string& directory) {
  std::error_code failure;
  for (fs::directory_iterator entry(directory, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    if (entry->path().filename().string().starts_with("rank-"))
      PENSTOCK_RETURN_IF_ERROR(remove_file(entry->path().string()));
  }
  return failure ? folder_failed(directory, "read", failure) : ok_status();
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
  PENSTOCK_RETURN_IF_ERROR(make_marked_folder(place));
  return remove_leftovers(place.directory);
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
  PENSTOCK_RETURN_IF_ERROR(remove_file(place.directory + "/" + place.marker));
  const std::string index = place.directory + "/" + kTensorIndexFile;
  PENSTOCK_RETURN_IF_ERROR(write_atomically(index, format_tensor_index(map, total_size)));
  // As every reader will see it.
  const StatusOr<TensorFolder> whole = TensorFolder::open(place.directory);
  const Status checked = whole.ok() ? whole->check(expected) : whole.status();
  if (!checked.ok()) PENSTOCK_RETURN_IF_ERROR(remove_file(index));
  return checked;
}

Status discard_weights_folder(const WeightsPlace& place) {
  return remove_file(place.directory + "/" + kTensorIndexFile);
}

}  // namespace penstock::coordinator
