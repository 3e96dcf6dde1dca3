#include "base/safetensors/file.h"

#include <utility>

#include "base/check.h"
#include "base/safetensors/values.h"

namespace penstock {

SafetensorsFile::SafetensorsFile(MappedFile file, SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {
  for (size_t i = 0; i < header_.tensors.size(); ++i) places_[header_.tensors[i].name] = i;
}

StatusOr<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  StatusOr<SafetensorsHeader> header = read_safetensors_header(std::as_bytes(file.bytes()));
  if (!header.ok()) return with_context(header.status(), path);
  return SafetensorsFile(std::move(file), *std::move(header));
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &header_.tensors[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& tensor) const {
  return std::as_bytes(file_.bytes())
      .subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.bytes));
}

Status SafetensorsFile::read(const TensorEntry& tensor, int64_t first, std::span<float> values) const {
  if (!is_float_dtype(tensor.dtype)) {
    return invalid_argument("{}: tensor {} at offset {}: dtype: expected F32, BF16 or F16, found {}", path(),
                            tensor.name, tensor.offset, tensor.dtype);
  }
  PENSTOCK_CHECK(first >= 0 && first + static_cast<int64_t>(values.size()) <= tensor.elements(), "{}",
                 tensor.name);
  PENSTOCK_RETURN_IF_ERROR(file_.check_unchanged());
  const auto element = static_cast<size_t>(safetensors_element_bytes(tensor.dtype));
  widen(tensor.dtype, bytes(tensor).subspan(static_cast<size_t>(first) * element, values.size() * element),
        values);
  return ok_status();
}

}  // namespace penstock
