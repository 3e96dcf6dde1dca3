// Writes one shard of a checkpoint: a safetensors file of float32 tensors, with the digest of each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/checkpoint/manifest.h"
#include "base/status.h"

namespace penstock {

struct TensorToStore {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;  // of that shape
};

// The file is there, and durable, when this returns it; whole, or not at all. Errors of AtomicFile.
StatusOr<CheckpointShard> write_shard(const std::string& folder, const std::string& name,
                                      std::span<const TensorToStore> tensors);

}  // namespace penstock
