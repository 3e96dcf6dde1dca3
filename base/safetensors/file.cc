#include "base/safetensors/file.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/safetensors/values.h"

namespace penstock {

namespace {

constexpr size_t kElementsOfPiece = 1 << 18;

StatusOr<SafetensorsHeader> read_header(const ReadableFile& file) {
  std::vector<std::byte> beginning(static_cast<size_t>(std::min<int64_t>(file.size(), 8)));
  PENSTOCK_RETURN_IF_ERROR(file.read(0, beginning));
  beginning.resize(static_cast<size_t>(safetensors_beginning_bytes(beginning, file.size())));
  PENSTOCK_RETURN_IF_ERROR(file.read(0, beginning));
  const StatusOr<SafetensorsHeader> header = read_safetensors_header(beginning, file.size());
  return header.ok() ? header : with_context(header.status(), file.path());
}

}  // namespace

SafetensorsFile::SafetensorsFile(ReadableFile file, SafetensorsHeader header)
    : file_(std::move(file)), header_(std::move(header)) {
  for (size_t i = 0; i < header_.tensors.size(); ++i) places_[header_.tensors[i].name] = i;
}

StatusOr<SafetensorsFile> SafetensorsFile::open(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(ReadableFile file, ReadableFile::open(path));
  PENSTOCK_ASSIGN_OR_RETURN(SafetensorsHeader header, read_header(file));
  return SafetensorsFile(std::move(file), std::move(header));
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &header_.tensors[found->second];
}

Status SafetensorsFile::widen_from(int64_t offset, const std::string& dtype, std::span<float> values) const {
  if (dtype == "F32") return file_.read(offset, std::as_writable_bytes(values));
  const auto element = static_cast<size_t>(safetensors_element_bytes(dtype));
  std::vector<std::byte> stored(std::min(values.size(), kElementsOfPiece) * element);
  while (!values.empty()) {
    const std::span<float> piece = values.first(std::min(values.size(), kElementsOfPiece));
    const std::span<std::byte> bytes = std::span(stored).first(piece.size() * element);
    PENSTOCK_RETURN_IF_ERROR(file_.read(offset, bytes));
    widen(dtype, bytes, piece);
    offset += static_cast<int64_t>(bytes.size());
    values = values.subspan(piece.size());
  }
  return ok_status();
}

Status SafetensorsFile::read(const TensorEntry& tensor, int64_t first, std::span<float> values) const {
  if (!is_float_dtype(tensor.dtype)) {
    return invalid_argument("{}: tensor {} at offset {}: dtype: expected F32, BF16 or F16, found {}", path(),
                            tensor.name, tensor.offset, tensor.dtype);
  }
  PENSTOCK_CHECK(first >= 0 && first + static_cast<int64_t>(values.size()) <= tensor.elements(), "{}",
                 tensor.name);
  const int64_t begin = tensor.offset + first * safetensors_element_bytes(tensor.dtype);
  const Status read = widen_from(begin, tensor.dtype, values);
  return read.ok()
             ? read
             : with_context(read, fmt::format("{}: tensor {} at offset {}", path(), tensor.name, begin));
}

}  // namespace penstock
