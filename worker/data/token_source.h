// The training samples of a job: which tokens step k's microbatch i trains on.
//
// A sample is a window of sequence_length + 1 tokens of the text at stride sequence_length: the first
// sequence_length are the inputs, the last sequence_length the targets. Windows are taken in a keyed
// permutation of the seed; step k takes samples [k x global_batch_size, (k + 1) x global_batch_size) of that
// order, and microbatch i its slice of microbatch_size. So the tokens of a microbatch are a function of
// (data, seed, step, microbatch) alone: not of the rank, the split, the schedule or a restart. No sample is
// used twice; when they run out the job ends.
//
// Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "worker/data/permutation.h"
#include "worker/data/text_files.h"

namespace penstock::worker {

class TokenSource {
 public:
  // Opens the files of the job. NotFound, FailedPrecondition: a file that is missing or cannot be read, by
  // name and reason. OutOfRange: less text than one sample.
  static StatusOr<TokenSource> open(const plan::JobSpec& job);

  int64_t samples() const { return order_.size(); }
  // Whole steps that the samples are good for.
  int64_t steps_available() const { return samples() / global_batch_; }
  // OutOfRange with the files and the first step that would lack samples, when `steps` are more than there
  // are. To be asked before the first step: no hours are lost to a text that was too short from the start.
  Status check_supply(int64_t steps) const;

  // Writes the tokens of a microbatch, [microbatch_size x sequence_length] row-major. Either span may be
  // empty: the embedding needs the inputs, the head the targets. OutOfRange: the data has run out.
  // InvalidArgument: a token outside the vocabulary. DataLoss: a file that cannot be read any more. Each
  // names file, step and offset.
  Status microbatch(StepIndex step, MicrobatchIndex microbatch, std::span<int32_t> inputs,
                    std::span<int32_t> targets);

 private:
  TokenSource(const plan::JobSpec& job, TextFiles text, int64_t windows);
  Status read_window(StepIndex step, int64_t window);
  Status out_of_samples(int64_t step) const;

  TextFiles text_;
  int64_t vocabulary_;
  int64_t sequence_length_;
  int64_t microbatch_size_;
  int64_t global_batch_;
  Permutation order_;
  std::vector<uint8_t> window_;  // sequence_length + 1 bytes of the sample being read
};

}  // namespace penstock::worker
