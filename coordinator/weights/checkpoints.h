// A job's directory of checkpoints: made ready for an attempt, and added to. Its layout is that of base/checkpoint.
//
// Slow (disks, and every byte of a checkpoint that an attempt starts from): call it away from the core's thread. Errors
// begin with the path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

struct CheckpointsWanted {
  WeightsPlace place{};  // no directory: the job writes none
  std::string job{};
  bool is_own = true;       // below the coordinator's state, and nobody else's
  int64_t latest_step = 0;  // steps on record: nothing later may be gone on from
  plan::StartSpec from{};   // what it began with
};

// What an attempt starts from.
struct StartingCheckpoint {
  std::string path{};  // "": none
  int64_t step = 0;
  std::string other_job{};             // whose it is, where it is not the job's own
  std::string fingerprint{};           // of the arithmetic that made it
  std::vector<std::string> refused{};  // why newer ones are not used
};

// What keeps the directory of a live job from everybody else's: without it the drafts, and the checkpoints of the same
// steps, of two coordinators' jobs of one name would take each other's place. None for what is the coordinator's own.
// Taken before prepare_checkpoints and held until the attempt's executors are gone. AlreadyExists names who has it.
StatusOr<std::optional<FileLock>> lock_checkpoints(const CheckpointsWanted& wanted);

// Makes the folder and its marker and removes what earlier attempts have not finished. While the
// job has no step of its own on record, checkpoints that are found are an earlier job's: they are moved beside where the
// folder is the coordinator's own, and otherwise AlreadyExists. Later attempts start from the newest whole checkpoint.
// Where there is none, the attempt starts from `from`, of which nothing is changed: every byte of it is read and held
// against its manifest and the model.
StatusOr<StartingCheckpoint> prepare_checkpoints(const CheckpointsWanted& wanted,
                                                 const plan::ModelSpec& model);

struct FoundCheckpoint {
  int64_t step = 0;  // 0: none
  std::string weights_digest{};
};
// The job's newest one of at most `latest_step` steps, by its manifest and sizes alone.
StatusOr<FoundCheckpoint> find_checkpoint(const std::string& directory, const std::string& job,
                                          int64_t latest_step);

struct CheckpointDraft {
  WeightsPlace place{};
  std::string job{};
  int64_t attempt = 0;
  int64_t step = 0;
};

// Joins the parts of all ranks: every tensor of the model once, each part of this job and step. Makes the folder one of
// Hugging Face too, and a checkpoint, by its manifest and then its name; of those up to its step the newest `keep` stay (one
// that cannot be removed is a line in the log). Its weights digest. Errors name file and tensor; the checkpoints before it stay.
StatusOr<std::string> commit_checkpoint(const CheckpointDraft& draft, const plan::JobSpec& spec, int ranks);

// Removes what the job's attempts have not finished, unless the directory bears the marker of somebody else by now: a
// later attempt, or another coordinator's job of that name.
Status remove_unfinished(const WeightsPlace& place, const std::string& job);

// Removes a draft that comes to nothing.
Status discard_checkpoint(const CheckpointDraft& draft);

}  // namespace penstock::coordinator
