#include "worker/data/token_source.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace penstock::worker {
namespace {

void check_size(const char* what, std::span<int32_t> span, int64_t expected) {
  PENSTOCK_CHECK(span.empty() || static_cast<int64_t>(span.size()) == expected, "{} {}, {} expected",
                 span.size(), what, expected);
}

std::span<int32_t> row(std::span<int32_t> rows, int64_t index, int64_t size) {
  return rows.empty() ? rows : rows.subspan(static_cast<size_t>(index * size), static_cast<size_t>(size));
}

}  // namespace

StatusOr<TokenSource> TokenSource::open(const plan::JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(SampleSet samples,
                            SampleSet::open(job.data, {.seed = static_cast<uint64_t>(job.train.seed),
                                                       .vocabulary = job.model.vocab_size}));
  return TokenSource(
      std::move(samples), job.data,
      {.sequences = job.train.global_batch_size, .microbatch_size = job.train.microbatch_size});
}

StatusOr<TokenSource> TokenSource::open_validation(const plan::JobSpec& job) {
  StatusOr<SampleSet> samples =
      SampleSet::open(job.validation.data, {.shuffled = false, .vocabulary = job.model.vocab_size});
  if (!samples.ok()) return with_context(samples.status(), "validation");
  const int64_t wanted = job.validation.microbatches * job.train.microbatch_size;
  if (samples->order().samples() < wanted) {
    return out_of_range(
        "validation: {} holds {} samples of {} tokens, one pass takes {} (validation.microbatches {} of {}); "
        "give it more, or take fewer microbatches",
        samples->names(), samples->order().samples(), job.validation.data.sequence_length, wanted,
        job.validation.microbatches, job.train.microbatch_size);
  }
  return TokenSource(*std::move(samples), job.validation.data,
                     {.sequences = wanted, .microbatch_size = job.train.microbatch_size, .repeats = true});
}

TokenSource::TokenSource(SampleSet samples, const plan::DataSpec& data, const Batch& batch)
    : samples_(std::move(samples)),
      batch_(batch),
      sequence_length_(data.sequence_length),
      end_of_document_(data.end_of_document),
      epochs_(data.epochs),
      window_(static_cast<size_t>(data.sequence_length + 1)),
      begins_(data.end_of_document < 0 ? 0 : window_.size()) {}

int64_t TokenSource::steps_available() const {
  if (batch_.repeats || epochs_ == 0) return SampleOrder::kEndless;
  return samples_.order().samples() / batch_.sequences;
}

Status TokenSource::check_supply(int64_t steps) const {
  return steps <= steps_available() ? ok_status() : out_of_samples(steps_available());
}

Status TokenSource::out_of_samples(int64_t step) const {
  return out_of_range(
      "data: {} runs out at step {}: {} samples of {} tokens are good for {} steps of {} at data.epochs {}; "
      "give it more text, set data.epochs higher (0: without end), or train fewer steps",
      samples_.names(samples_.order().first_to_run_out()), step, samples_.order().samples(), sequence_length_,
      steps_available(), batch_.sequences, epochs_);
}

int64_t TokenSource::sample_of(StepIndex step, int64_t sequence) const {
  return batch_.repeats ? sequence : int64_t{step.value} * batch_.sequences + sequence;
}

Status TokenSource::read_sample(StepIndex step, int64_t sequence) {
  const int64_t sample = sample_of(step, sequence);
  if (const Status read = samples_.read(sample, window_); !read.ok()) {
    return with_context(read, fmt::format("step {}", step.value));
  }
  if (!begins_.empty()) find_documents(sample);
  return ok_status();
}

void TokenSource::find_documents(int64_t sample) {
  begins_[0] = 0;  // or began before: here it makes no difference
  for (size_t i = 1; i < window_.size(); ++i) begins_[i] = window_[i - 1] == end_of_document_;
  const SampleSet::Start start = samples_.start(sample);
  const int64_t end = start.token + static_cast<int64_t>(window_.size());
  for (int64_t begin = start.source->next_document(start.token + 1); begin < end;
       begin = start.source->next_document(begin + 1)) {
    begins_[begin - start.token] = 1;
  }
}

Status TokenSource::microbatch(StepIndex step, MicrobatchIndex microbatch, std::span<int32_t> inputs,
                               std::span<int32_t> targets, std::span<int32_t> document_starts) {
  const int64_t tokens = batch_.microbatch_size * sequence_length_;
  check_size("inputs", inputs, tokens);
  check_size("targets", targets, tokens);
  check_size("document starts", document_starts, tokens);
  if (step.value >= steps_available()) return out_of_samples(step.value);

  PENSTOCK_CHECK(microbatch.is_set(), "a microbatch without a number");
  const int64_t first = microbatch.value * batch_.microbatch_size;
  for (int64_t i = 0; i < batch_.microbatch_size; ++i) {
    const std::span<int32_t> input = row(inputs, i, sequence_length_);
    const std::span<int32_t> target = row(targets, i, sequence_length_);
    const std::span<int32_t> starts = row(document_starts, i, sequence_length_);
    if (first + i >= batch_.sequences) {
      std::fill(input.begin(), input.end(), 0);
      std::fill(target.begin(), target.end(), kNoTarget);
      std::fill(starts.begin(), starts.end(), 0);
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(read_sample(step, first + i));
    write_sample(input, target, starts);
  }
  return ok_status();
}

void TokenSource::write_sample(std::span<int32_t> input, std::span<int32_t> target,
                               std::span<int32_t> starts) const {
  if (!input.empty()) std::copy(window_.begin(), window_.end() - 1, input.begin());
  if (!target.empty()) std::copy(window_.begin() + 1, window_.end(), target.begin());
  std::fill(starts.begin(), starts.end(), 0);
  if (begins_.empty()) return;
  for (size_t i = 0; i < target.size(); ++i) {
    if (begins_[i + 1] != 0) target[i] = kNoTarget;
  }
  for (size_t i = 1; i < starts.size(); ++i) {
    starts[i] = begins_[i] != 0 ? static_cast<int32_t>(i) : starts[i - 1];
  }
}

StatusOr<int64_t> TokenSource::target_count(StepIndex step) {
  if (begins_.empty()) return batch_.sequences * sequence_length_;
  const StepIndex counted = batch_.repeats ? StepIndex(0) : step;
  if (counted_step_ == counted) return counted_targets_;
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t targets, count_targets(step));
  counted_step_ = counted;
  counted_targets_ = targets;
  return targets;
}

StatusOr<int64_t> TokenSource::count_targets(StepIndex step) {
  if (step.value >= steps_available()) return out_of_samples(step.value);
  int64_t targets = 0;
  for (int64_t sequence = 0; sequence < batch_.sequences; ++sequence) {
    PENSTOCK_RETURN_IF_ERROR(read_sample(step, sequence));
    targets += std::count(begins_.begin() + 1, begins_.end(), 0);
  }
  if (targets > 0) return targets;
  return invalid_argument("step {}: data: {}: expected a token to predict, found only ends of documents ({})",
                          step.value, samples_.names(), end_of_document_);
}

}  // namespace penstock::worker
