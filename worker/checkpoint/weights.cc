#include "worker/checkpoint/weights.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/atomic_file.h"
#include "base/safetensors/folder.h"
#include "base/safetensors/writer.h"
#include "plan/spec/parameters.h"

namespace penstock::worker {
namespace {

std::span<float> values_of(const kernels::TensorView& tensor) {
  return {tensor.f32(), static_cast<size_t>(tensor.elements())};
}

Status load(const TensorFolder& folder, const Parameter& parameter) {
  const TensorPlace place = folder.at(parameter.spec.stored_name);
  return place.file->read(*place.tensor, 0, values_of(parameter.weight));
}

}  // namespace

Status load_weights(const std::string& folder, const plan::ModelSpec& model,
                    const ParameterStore& parameters) {
  PENSTOCK_ASSIGN_OR_RETURN(const TensorFolder tensors, TensorFolder::open(folder));
  std::vector<ExpectedTensor> expected;
  for (const plan::ParameterSpec& spec : plan::model_parameters(model))
    expected.push_back({spec.stored_name, spec.shape});
  PENSTOCK_RETURN_IF_ERROR(tensors.check(expected));
  for (const Parameter& parameter : parameters.parameters())
    PENSTOCK_RETURN_IF_ERROR(load(tensors, parameter));
  return parameters.tied_head() == nullptr ? ok_status() : load(tensors, *parameters.tied_head());
}

Status check_weights_place(const WeightsPlace& place, RankIndex rank, const std::string& what) {
  std::error_code ignored;
  if (!std::filesystem::exists(place.directory + "/" + place.marker, ignored)) {
    return failed_precondition(
        "the folder of {}, {}, is not the coordinator's here (it holds no {}): hosts of a job must share it; start "
        "the coordinator with --state on a shared disk",
        what, place.directory, place.marker);
  }
  const StatusOr<AtomicFile> probe =
      AtomicFile::create(fmt::format("{}/.probe-{}", place.directory, rank.value));
  if (probe.ok()) return ok_status();
  return failed_precondition("the folder of {} cannot be written here: {}", what, message(probe.status()));
}

Status write_weights(const WeightsPlace& place, RankIndex rank, int ranks,
                     std::span<const Parameter> parameters) {
  std::vector<TensorEntry> tensors;
  for (const Parameter& parameter : parameters)
    tensors.push_back(tensor_to_write(parameter.spec.stored_name, parameter.spec.shape, "F32"));
  const std::string path = place.directory + "/" + tensor_file_name("rank", rank.value, ranks);
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                            SafetensorsWriter::create(path, std::move(tensors), {{"format", "pt"}}));
  for (const Parameter& parameter : parameters)
    PENSTOCK_RETURN_IF_ERROR(writer.append(values_of(parameter.weight)));
  return writer.commit();
}

}  // namespace penstock::worker
