// A directory of checkpoints, each a folder step-NNNNNNNNN. What is being written, or removed, begins with a dot.
//
// Errors begin with the path. Thread: any; one writer at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/checkpoint/checkpoint.h"
#include "base/status.h"

namespace penstock {

struct ListedCheckpoint {
  int64_t step = 0;
  std::string path;
};
// Newest first; whether they are whole is not asked. Empty where there is no such directory.
StatusOr<std::vector<ListedCheckpoint>> list_checkpoints(const std::string& directory);

struct NewestCheckpoint {
  std::optional<Checkpoint> checkpoint;  // none: no whole one
  std::vector<std::string> refused;      // why newer ones were, newest first
};
// The newest one of at most `latest_step` steps that holds the expected tensors, every byte of it as it was written.
StatusOr<NewestCheckpoint> newest_checkpoint(const std::string& directory, int64_t latest_step,
                                             std::span<const ExpectedTensor> expected);

// Makes a draft, a folder in `directory`, a checkpoint: writes the manifest, last, and renames it. One of the same step
// is replaced.
StatusOr<std::string> commit_draft(const std::string& directory, const std::string& draft,
                                   const CheckpointManifest& manifest);

// Removes all but the newest `keep`, and the drafts that `prefix` begins.
Status remove_older(const std::string& directory, int64_t keep);
Status remove_drafts(const std::string& directory, const std::string& prefix);

constexpr const char* kDraftPrefix = ".partial-";

}  // namespace penstock
