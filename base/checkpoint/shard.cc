#include "base/checkpoint/shard.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace penstock {
namespace {

// Hashed and written while it is in the cache.
constexpr size_t kElementsOfPiece = 1 << 18;

}  // namespace

ShardWriter::ShardWriter(SafetensorsWriter writer, CheckpointShard shard)
    : writer_(std::move(writer)), shard_(std::move(shard)) {
  finish_full_tensors();
}

StatusOr<ShardWriter> ShardWriter::create(const std::string& folder, const std::string& name,
                                          const std::vector<ExpectedTensor>& tensors) {
  std::vector<TensorEntry> entries;
  CheckpointShard shard{name, {}};
  for (const ExpectedTensor& tensor : tensors) {
    entries.push_back(tensor_to_write(tensor.name, tensor.shape, "F32"));
    shard.tensors.push_back({tensor.name, tensor.shape, {}});
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::create(folder + "/" + name, std::move(entries), {{"format", "pt"}}));
  return ShardWriter(std::move(writer), std::move(shard));
}

void ShardWriter::finish_full_tensors() {
  while (tensor_ < shard_.tensors.size() && elements_ == shard_.tensors[tensor_].elements()) {
    shard_.tensors[tensor_].digest = digester_.finish();
    ++tensor_;
    elements_ = 0;
  }
}

Status ShardWriter::append(std::span<const float> values) {
  for (size_t first = 0; first < values.size(); first += kElementsOfPiece) {
    const auto piece = values.subspan(first, std::min(kElementsOfPiece, values.size() - first));
    digester_.add(piece);
    PENSTOCK_RETURN_IF_ERROR(writer_.append(piece));
  }
  elements_ += static_cast<int64_t>(values.size());
  finish_full_tensors();
  return ok_status();
}

StatusOr<CheckpointShard> ShardWriter::commit() {
  PENSTOCK_CHECK_EQ(tensor_, shard_.tensors.size());
  PENSTOCK_RETURN_IF_ERROR(writer_.commit());
  return std::move(shard_);
}

StatusOr<CheckpointShard> write_shard(const std::string& folder, const std::string& name,
                                      std::span<const TensorToStore> tensors) {
  std::vector<ExpectedTensor> expected;
  for (const TensorToStore& tensor : tensors) expected.push_back({tensor.name, tensor.shape});
  PENSTOCK_ASSIGN_OR_RETURN(ShardWriter writer, ShardWriter::create(folder, name, expected));
  for (const TensorToStore& tensor : tensors) PENSTOCK_RETURN_IF_ERROR(writer.append(tensor.values));
  return writer.commit();
}

}  // namespace penstock
