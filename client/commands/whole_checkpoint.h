// Checkpoints that no job writes: a Hugging Face folder made one of step 0, and a copy of one, cut into files anew.
#pragma once

#include <cstdint>
#include <string>

#include "base/checkpoint/checkpoint.h"
#include "base/status.h"
#include "client/commands/model_folder.h"

namespace penstock::client {

constexpr int64_t kShardBytesByDefault = 5'000'000'000;

// Writes `target`, a new or empty folder: a checkpoint, and a folder of Hugging Face too. Where `source` is a checkpoint,
// its step, its moments and all that its manifest tells go with it, and every tensor must come out with the digest that it
// has there: DataLoss with file and tensor otherwise. Elsewhere the step is 0 and the moments are zero. `verb` is what the
// progress is called. Errors of the folders; the manifest comes last: until then it is no checkpoint.
StatusOr<Checkpoint> write_whole_checkpoint(const ModelFolder& source, const std::string& target,
                                            int64_t shard_bytes, const std::string& verb);

// What is said of one that was written: for people, or one line of JSON.
std::string checkpoint_text(const Checkpoint& written, const ModelFolder& source, const std::string& output);

}  // namespace penstock::client
