// Writes one shard of a checkpoint: a safetensors file of float32 tensors, with the digest of each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/checkpoint/manifest.h"
#include "base/safetensors/writer.h"
#include "base/status.h"

namespace penstock {

// Tensor after tensor, so that no more than a piece of one is in memory. Errors of AtomicFile.
class ShardWriter {
 public:
  // `tensors` in the order in which their values will come.
  static StatusOr<ShardWriter> create(const std::string& folder, const std::string& name,
                                      const std::vector<ExpectedTensor>& tensors);

  // The next values of the next tensor, a whole one or a piece; never of two.
  Status append(std::span<const float> values);
  // After the last value of the last tensor. The file is there, and durable, when this returns it; whole, or not at all.
  StatusOr<CheckpointShard> commit();

 private:
  ShardWriter(SafetensorsWriter writer, CheckpointShard shard);
  void finish_full_tensors();

  SafetensorsWriter writer_;
  CheckpointShard shard_;
  Digester digester_;
  size_t tensor_ = 0;     // the one that is being written
  int64_t elements_ = 0;  // of it that have been
};

struct TensorToStore {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;  // of that shape
};

// A whole shard at once.
StatusOr<CheckpointShard> write_shard(const std::string& folder, const std::string& name,
                                      std::span<const TensorToStore> tensors);

}  // namespace penstock
