// Writes a rank's part of each checkpoint while the steps go on: take() copies the state, a thread of its own writes
// the copy and says how it went.
//
// There is one copy: a take() waits for the part before it, and says so. A part that cannot be written is told as such
// and removed; the training goes on.
// Thread: take() and drain() on the interpreter's; `report` is called on the writer's.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "kernels/device/slab.h"
#include "proto/codec/messages.h"
#include "worker/checkpoint/training_state.h"

namespace penstock::worker {

// Of the rank that writes.
struct CheckpointAuthor {
  AttemptKey attempt;
  RankIndex rank;
  int ranks = 1;
  std::string directory;  // of the job's checkpoints
  std::string spec_yaml;
  int64_t samples_per_step = 0;
};

class CheckpointWriter {
 public:
  using Report = std::function<Status(const CheckpointWritten&)>;

  // Allocates the copy. `state` outlives it. ResourceExhausted: no memory, with the bytes asked for.
  static StatusOr<std::unique_ptr<CheckpointWriter>> create(CheckpointAuthor author, TrainingState state);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  // Once, before the first take().
  void start(std::string fingerprint, Report report, const Clock& clock);

  // Copies the state after `step` steps; it is written from then on. Errors: those of the report before it.
  Status take(int64_t step);
  // Waits until everything taken is written, or has been told not to be.
  Status drain();

  int64_t snapshot_bytes() const { return snapshot_.bytes(); }

 private:
  CheckpointWriter(CheckpointAuthor author, TrainingState state, kernels::Slab snapshot);
  void write_until_closed();
  CheckpointWritten written(int64_t step) const;
  Status write_part(int64_t step) const;
  std::string folder_of(int64_t step) const;

  const CheckpointAuthor author_;
  const TrainingState state_;
  kernels::Slab snapshot_;
  TrainingState copy_;  // of state_, in snapshot_; the writer's while busy_
  std::string fingerprint_;
  Report report_;
  const Clock* clock_ = nullptr;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;  // from take() to the end of the writing
  bool closing_ = false;
  int64_t step_ = 0;  // of the copy
  Status reported_;
  std::thread thread_;
};

}  // namespace penstock::worker
