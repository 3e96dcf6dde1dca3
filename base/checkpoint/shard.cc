#include "base/checkpoint/shard.h"

#include <algorithm>

#include "base/safetensors/writer.h"

namespace penstock {
namespace {

// Hashed and written while it is in the cache.
constexpr size_t kElementsOfPiece = 1 << 18;

StatusOr<Digest> write_tensor(SafetensorsWriter& writer, std::span<const float> values) {
  Digester digester;
  for (size_t first = 0; first < values.size(); first += kElementsOfPiece) {
    const auto piece = values.subspan(first, std::min(kElementsOfPiece, values.size() - first));
    digester.add(piece);
    PENSTOCK_RETURN_IF_ERROR(writer.append(piece));
  }
  return digester.finish();
}

}  // namespace

StatusOr<CheckpointShard> write_shard(const std::string& folder, const std::string& name,
                                      std::span<const TensorToStore> tensors) {
  std::vector<TensorEntry> entries;
  for (const TensorToStore& tensor : tensors)
    entries.push_back(tensor_to_write(tensor.name, tensor.shape, "F32"));
  PENSTOCK_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::create(folder + "/" + name, std::move(entries), {{"format", "pt"}}));
  CheckpointShard shard{name, {}};
  for (const TensorToStore& tensor : tensors) {
    PENSTOCK_ASSIGN_OR_RETURN(const Digest digest, write_tensor(writer, tensor.values));
    shard.tensors.push_back({tensor.name, tensor.shape, digest});
  }
  PENSTOCK_RETURN_IF_ERROR(writer.commit());
  return shard;
}

}  // namespace penstock
