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
// The job's newest one of at most `latest_step` steps that holds the expected tensors, every byte of it as it was
// written.
StatusOr<NewestCheckpoint> newest_checkpoint(const std::string& directory, const std::string& job,
                                             int64_t latest_step, std::span<const ExpectedTensor> expected);

// Makes a draft, a folder in `directory`, a checkpoint: writes the manifest, opens it as every reader will, holds it
// against what it must hold, and renames it, last. One of the same step is replaced, unless it
// is another job's: AlreadyExists. Its path.
StatusOr<std::string> commit_draft(const std::string& directory, const std::string& draft,
                                   const CheckpointManifest& manifest,
                                   std::span<const ExpectedTensor> expected);

// Of the checkpoints of at most `committed` steps, removes all but the newest `keep`, at least 1. Later ones are those
// that the job could not start from, damaged or somebody else's: they are no reason to remove good ones, and stay until
// one of the same step takes their place.
Status remove_older(const std::string& directory, int64_t committed, int64_t keep);
// Removes what `prefix` begins.
Status remove_drafts(const std::string& directory, const std::string& prefix);

}  // namespace penstock
