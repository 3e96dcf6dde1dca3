// What a checkpoint says of itself: manifest.json, the last file that is written of it.
//
//     step-000000050/
//       manifest.json
//       config.json, model.safetensors.index.json           the folder is one of Hugging Face, too
//       rank-00000-of-00004.safetensors                     weights, float32, by their Hugging Face names
//       moments-00000-of-00004.safetensors                  AdamW's: exp_avg.NAME and exp_avg_sq.NAME, float32
//
// Names are those of the model, never of a stage or a rank: which rank wrote a tensor says nothing of who may read it.
// The manifest holds the digest of every tensor and every other file, and ends with a digest of its own text; a shard's
// header follows from its tensors. So there is no byte of a checkpoint that could change unseen.
//
// The parts of a checkpoint that is being written are manifests too, of one rank's shards.
//
// Bounds: a manifest has at most 256 MiB, 65,536 files, 2^20 tensors, of at most 2^42
// elements in a file.
// Thread: any; plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest/digest.h"
#include "base/safetensors/folder.h"
#include "base/status.h"

namespace penstock {

constexpr const char* kManifestFile = "manifest.json";
constexpr int kManifestVersion = 1;
constexpr int64_t kLargestManifest = 256 << 20;  // bytes
constexpr const char* kDraftPrefix = ".partial-";

struct CheckpointTensor {
  std::string name;
  std::vector<int64_t> shape;
  Digest digest{};  // of its float32 bytes

  int64_t elements() const;
  bool operator==(const CheckpointTensor&) const = default;
};

// A safetensors file.
struct CheckpointShard {
  std::string name;
  std::vector<CheckpointTensor> tensors;  // in the order of their data

  // What the file begins with; its data follows.
  std::string header() const;
  int64_t data_bytes() const;
  bool operator==(const CheckpointShard&) const = default;
};

// Any other file.
struct CheckpointText {
  std::string name;
  int64_t bytes = 0;
  Digest digest{};
  bool operator==(const CheckpointText&) const = default;
};

struct CheckpointManifest {
  std::string job;
  int64_t step = 0;     // steps that were done: the next one has this number, counted from 0
  int64_t samples = 0;  // data position: sequences that were consumed, in the order that the job's seed gives
  std::string spec_yaml;
  std::string fingerprint;     // of the arithmetic
  std::string weights_digest;  // plan/spec/weights_digest.h; "" in a part
  std::vector<CheckpointText> texts;
  std::vector<CheckpointShard> shards;
  bool operator==(const CheckpointManifest&) const = default;
};

std::string format_manifest(const CheckpointManifest& manifest);

// DataLoss: not the text that format_manifest wrote: cut, damaged or edited; or of another version. InvalidArgument:
// no manifest of ours; a name that leads out of the folder, or stands twice. Each names the place.
StatusOr<CheckpointManifest> parse_manifest(std::string_view text);

// "step-000000050", and back; -1: no name of a checkpoint.
std::string checkpoint_name(int64_t step);
int64_t step_of_checkpoint(std::string_view name);

// While it is being written, by one attempt of a job: its folder, and in it the part of each rank.
std::string draft_name(const std::string& job, int64_t attempt, int64_t step);
std::string draft_prefix(const std::string& job);  // of all drafts of the job
std::string part_name(int64_t rank, int64_t ranks);

std::string first_moment_name(const std::string& parameter);   // "exp_avg.NAME"
std::string second_moment_name(const std::string& parameter);  // "exp_avg_sq.NAME"
// The weights and both moments of each.
std::vector<ExpectedTensor> checkpoint_tensors(const std::vector<ExpectedTensor>& weights);

}  // namespace penstock
