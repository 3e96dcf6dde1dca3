// The tokens of a job: what step k's microbatch i trains on, and what a validation pass reads.
//
// Training: step k takes samples [k x global_batch_size, (k + 1) x global_batch_size) of the run's order
// (sample_order.h), microbatch i its slice of microbatch_size. So the tokens of a microbatch are a function
// of (data, seed, step, microbatch) alone: not of the rank, the split, the schedule or a restart. An epoch
// ends inside a step where it does; the step goes on with the next.
// Validation: every pass takes the same samples, the first of the held-out data in the order of its files.
//
// The last microbatch of a step may have fewer samples than the others, and where pipelines stand side by side those
// behind it have none: the missing sequences are padding, token 0 in the inputs and kNoTarget in the targets.
//
// Documents (data.end_of_document): a document begins behind each such token, and where the index of a
// Megatron file says so. Attention is to stay inside a document, so the first token of one has nothing to be
// predicted from: the target in front of it is kNoTarget.
//
// Never allocates after open, unless it fails. Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "worker/data/sample_set.h"

namespace penstock::worker {

constexpr int32_t kNoTarget = -1;  // the loss leaves this place out

class TokenSource {
 public:
  // Opens the training files of the job. NotFound, FailedPrecondition, InvalidArgument, DataLoss: a file that
  // is missing, cannot be read or is not what it should be, by name and reason. OutOfRange: fewer tokens than
  // one sample.
  static StatusOr<TokenSource> open(const plan::JobSpec& job);
  // Opens the validation files. OutOfRange too when they hold fewer samples than one pass takes.
  static StatusOr<TokenSource> open_validation(const plan::JobSpec& job);

  const SampleSet& samples() const { return samples_; }
  // Whole steps that the samples are good for; SampleOrder::kEndless without end.
  int64_t steps_available() const;
  // OutOfRange with the files and the first step that would lack samples, when `steps` are more than there
  // are. To be asked before the first step: no hours are lost to data that was too short from the start.
  Status check_supply(int64_t steps) const;

  // Writes the tokens of a microbatch, each span [microbatch_size x sequence_length] row-major, or empty
  // where it is not needed: the embedding needs the inputs, the head the targets, attention the document
  // starts: for each token the place in its own sequence of the first token of its document. Without
  // data.end_of_document these are 0.
  // OutOfRange: the data has run out. InvalidArgument: a token outside the vocabulary. DataLoss: a file that
  // has changed. Each names file, step and place.
  Status microbatch(StepIndex step, MicrobatchIndex microbatch, std::span<int32_t> inputs,
                    std::span<int32_t> targets, std::span<int32_t> document_starts = {});

  // Targets of the whole step that are not kNoTarget: the step's loss is the mean over them. Reads the step's
  // tokens where there are documents, once however often it is asked. Errors: those of microbatch;
  // InvalidArgument: not a single target.
  StatusOr<int64_t> target_count(StepIndex step);

 private:
  struct Batch {
    int64_t sequences = 0;  // of a step
    int64_t microbatch_size = 0;
    bool repeats = false;  // every step takes the same
  };
  TokenSource(SampleSet samples, const plan::DataSpec& data, const Batch& batch);

  int64_t sample_of(StepIndex step, int64_t sequence) const;
  Status read_sample(StepIndex step, int64_t sequence);
  void find_documents(int64_t sample);
  void write_sample(std::span<int32_t> input, std::span<int32_t> target, std::span<int32_t> starts) const;
  StatusOr<int64_t> count_targets(StepIndex step);
  Status out_of_samples(int64_t step) const;

  SampleSet samples_;
  Batch batch_;
  int64_t sequence_length_;
  int64_t end_of_document_;
  int64_t epochs_;
  std::vector<int32_t> window_;  // sequence_length + 1 tokens of the sample being read
  std::vector<uint8_t> begins_;  // beside window_: whether a document begins there; empty without documents
  StepIndex counted_step_;
  int64_t counted_targets_ = 0;
};

}  // namespace penstock::worker
