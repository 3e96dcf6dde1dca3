#include "client/commands/model_folder.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/safetensors/values.h"
#include "client/commands/terminal.h"
#include "plan/interop/hugging_face.h"

namespace penstock::client {
namespace {

constexpr int64_t kElementsOfPiece = 1 << 20;

StatusOr<plan::ModelSpec> read_config(const std::string& folder) {
  const std::string path = folder + "/" + plan::kHuggingFaceConfigFile;
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(path, plan::kLargestHuggingFaceConfig));
  const StatusOr<plan::ModelSpec> model = plan::model_from_hugging_face(text);
  return model.ok() ? model : with_context(model.status(), path);
}

}  // namespace

int64_t ModelFolder::elements() const {
  int64_t sum = 0;
  for (const plan::ParameterSpec& parameter : parameters) sum += parameter.elements();
  return sum;
}

int64_t ModelFolder::stored_bytes() const {
  int64_t sum = 0;
  for (const SafetensorsFile& file : tensors.files()) {
    for (const TensorEntry& tensor : file.tensors()) sum += tensor.bytes;
  }
  return sum;
}

StatusOr<ModelFolder> open_model_folder(const std::string& path) {
  std::error_code failure;
  const std::string absolute = std::filesystem::absolute(path, failure).lexically_normal().string();
  if (failure) return unavailable("{}: {}", path, failure.message());
  PENSTOCK_ASSIGN_OR_RETURN(plan::ModelSpec model, read_config(absolute));
  std::vector<plan::ParameterSpec> parameters = plan::model_parameters(model);
  PENSTOCK_ASSIGN_OR_RETURN(TensorFolder tensors, TensorFolder::open(absolute));
  std::vector<ExpectedTensor> expected;
  for (const plan::ParameterSpec& parameter : parameters)
    expected.push_back({parameter.stored_name, parameter.shape});
  PENSTOCK_RETURN_IF_ERROR(tensors.check(expected));
  return ModelFolder{absolute, std::move(model), std::move(parameters), std::move(tensors)};
}

Status read_parameter(const ModelFolder& folder, const plan::ParameterSpec& parameter,
                      const std::function<Status(std::span<float>)>& take) {
  const TensorPlace place = folder.tensors.at(parameter.stored_name);
  const int64_t elements = parameter.elements();
  std::vector<float> values;
  for (int64_t first = 0; first < elements; first += kElementsOfPiece) {
    values.resize(static_cast<size_t>(std::min(kElementsOfPiece, elements - first)));
    PENSTOCK_RETURN_IF_ERROR(place.file->read(*place.tensor, first, values));
    PENSTOCK_RETURN_IF_ERROR(check_finite(place, first, values));
    PENSTOCK_RETURN_IF_ERROR(take(values));
  }
  return ok_status();
}

Status check_finite(const TensorPlace& place, int64_t first, std::span<const float> values) {
  const size_t found = first_not_finite(values);
  if (found == values.size()) return ok_status();
  const int64_t element = first + static_cast<int64_t>(found);
  return invalid_argument("{}: tensor {}: element {} at offset {}: expected a finite number, found {}",
                          place.file->path(), place.tensor->name, element,
                          place.tensor->offset + element * safetensors_element_bytes(place.tensor->dtype),
                          values[found]);
}

}  // namespace penstock::client
