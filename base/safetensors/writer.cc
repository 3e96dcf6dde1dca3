#include "base/safetensors/writer.h"

#include <utility>

#include "base/check.h"
#include "base/safetensors/values.h"

namespace penstock {
namespace {

constexpr size_t kElementsOfPiece = 1 << 16;  // narrowed at a time

}  // namespace

TensorEntry tensor_to_write(std::string name, std::vector<int64_t> shape, std::string dtype) {
  TensorEntry tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  tensor.dtype = std::move(dtype);
  return tensor;
}

SafetensorsWriter::SafetensorsWriter(AtomicFile file, std::vector<TensorEntry> tensors)
    : file_(std::move(file)), tensors_(std::move(tensors)) {
  for (const TensorEntry& tensor : tensors_) {
    PENSTOCK_CHECK(tensor.dtype == "F32" || tensor.dtype == "BF16", "{}: dtype {}", tensor.name,
                   tensor.dtype);
    data_bytes_ += tensor.bytes;
  }
  skip_full_tensors();
}

StatusOr<SafetensorsWriter> SafetensorsWriter::create(const std::string& path,
                                                      std::vector<TensorEntry> tensors,
                                                      const std::map<std::string, std::string>& metadata) {
  PENSTOCK_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  PENSTOCK_RETURN_IF_ERROR(file.write(format_safetensors_header(tensors, metadata)));
  return SafetensorsWriter(std::move(file), std::move(tensors));
}

void SafetensorsWriter::skip_full_tensors() {
  while (tensor_ < tensors_.size() && elements_ == tensors_[tensor_].elements()) {
    ++tensor_;
    elements_ = 0;
  }
}

Status SafetensorsWriter::append(std::span<const float> values) {
  if (values.empty()) return ok_status();
  PENSTOCK_CHECK(tensor_ < tensors_.size(), "{}: values after the last tensor", file_.path());
  const TensorEntry& tensor = tensors_[tensor_];
  elements_ += static_cast<int64_t>(values.size());
  PENSTOCK_CHECK(elements_ <= tensor.elements(), "{}: more values than its shape {}", tensor.name,
                 shape_text(tensor.shape));
  if (tensor.dtype == "F32") {
    PENSTOCK_RETURN_IF_ERROR(file_.write(std::as_bytes(values)));
  } else {
    std::vector<uint16_t> narrowed;
    for (size_t first = 0; first < values.size(); first += kElementsOfPiece) {
      narrowed.clear();
      for (const float value : values.subspan(first, std::min(kElementsOfPiece, values.size() - first)))
        narrowed.push_back(narrowed_to_bfloat16(value));
      PENSTOCK_RETURN_IF_ERROR(file_.write(std::as_bytes(std::span<const uint16_t>(narrowed))));
    }
  }
  skip_full_tensors();
  return ok_status();
}

Status SafetensorsWriter::commit() {
  PENSTOCK_CHECK(tensor_ == tensors_.size(), "{}: {} of {} tensors written", file_.path(), tensor_,
                 tensors_.size());
  return file_.commit();
}

}  // namespace penstock
