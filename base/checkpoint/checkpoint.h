// A whole checkpoint, opened for reading. Opening it holds the manifest, and the size and header of every file, against
// each other; a tensor's values are held against their digest whenever they are read. So nothing is believed that was
// not written, and damage is told by file, tensor and offset.
//
// Thread: reading is const and safe from any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/checkpoint/manifest.h"
#include "base/readable_file.h"
#include "base/status.h"

namespace penstock {

class Checkpoint {
 public:
  // NotFound: no such folder, or none with a manifest in it: half written, or no checkpoint. DataLoss: damaged, cut or
  // exchanged. InvalidArgument: not ours. Each begins with the path of the file.
  static StatusOr<Checkpoint> open(const std::string& folder);

  const std::string& path() const { return path_; }
  const CheckpointManifest& manifest() const { return manifest_; }
  int64_t data_bytes() const;  // of all its tensors

  // InvalidArgument unless it holds exactly these tensors: names the first that is missing, misshaped or beyond them.
  Status check(std::span<const ExpectedTensor> expected) const;

  // All values of a tensor that check() has seen. DataLoss names file, tensor and offset.
  Status read(const std::string& tensor, std::span<float> values) const;
  // Null: none of that name.
  const CheckpointTensor* find(const std::string& tensor) const;

  // Reads every byte, a MiB at a time. `progress`, where there is one, is called with the bytes of each piece.
  Status verify(const std::function<void(int64_t bytes)>& progress = {}) const;

 private:
  struct Shard {
    ReadableFile file;
    std::vector<int64_t> offsets;  // beside the manifest's tensors
  };

  Checkpoint() = default;
  Status add_shard(const CheckpointShard& shard);
  Status check_text(const CheckpointText& text) const;
  Status check_digest(size_t shard, size_t tensor, const Digest& found) const;
  Status read_part(size_t shard, size_t tensor, int64_t first_byte, std::span<std::byte> bytes) const;
  Status verify_tensor(size_t shard, size_t tensor, const std::function<void(int64_t)>& progress) const;

  std::string path_;
  CheckpointManifest manifest_;
  std::vector<Shard> shards_;                                // beside manifest_.shards
  std::map<std::string, std::pair<size_t, size_t>> places_;  // by name: shard, tensor in it
};

}  // namespace penstock
