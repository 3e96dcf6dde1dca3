#include "worker/data/token_source.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace penstock::worker {
namespace {

std::string names(const TextFiles& text) {
  const std::vector<std::string> paths = text.paths();
  return list_cut(paths);
}

}  // namespace

StatusOr<TokenSource> TokenSource::open(const plan::JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(TextFiles text, TextFiles::open(job.data.sources));
  const int64_t window = job.data.sequence_length + 1;
  if (text.bytes() < window) {
    return out_of_range(
        "data: {} holds {} bytes, one sample needs {} (sequence_length {} and one more); step 0 cannot run",
        names(text), text.bytes(), window, job.data.sequence_length);
  }
  const int64_t windows = (text.bytes() - 1) / job.data.sequence_length;
  return TokenSource(job, std::move(text), windows);
}

TokenSource::TokenSource(const plan::JobSpec& job, TextFiles text, int64_t windows)
    : text_(std::move(text)),
      vocabulary_(job.model.vocab_size),
      sequence_length_(job.data.sequence_length),
      microbatch_size_(job.train.microbatch_size),
      global_batch_(job.train.global_batch_size),
      order_(static_cast<uint64_t>(job.train.seed), windows),
      window_(static_cast<size_t>(job.data.sequence_length + 1)) {}

Status TokenSource::check_supply(int64_t steps) const {
  return steps <= steps_available() ? ok_status() : out_of_samples(steps_available());
}

Status TokenSource::out_of_samples(int64_t step) const {
  return out_of_range(
      "data: {} runs out at step {}: its {} samples of {} tokens are good for {} steps of {}; give it more "
      "text, or train fewer steps",
      names(text_), step, samples(), sequence_length_, steps_available(), global_batch_);
}

Status TokenSource::microbatch(StepIndex step, MicrobatchIndex microbatch, std::span<int32_t> inputs,
                               std::span<int32_t> targets) {
  const auto wanted = static_cast<size_t>(microbatch_size_ * sequence_length_);
  PENSTOCK_CHECK(inputs.empty() || inputs.size() == wanted, "{} inputs, {} expected", inputs.size(), wanted);
  PENSTOCK_CHECK(targets.empty() || targets.size() == wanted, "{} targets, {} expected", targets.size(),
                 wanted);
  if (step.value >= steps_available()) return out_of_samples(step.value);

  const int64_t first = step.value * global_batch_ + microbatch.value * microbatch_size_;
  for (int64_t i = 0; i < microbatch_size_; ++i) {
    PENSTOCK_RETURN_IF_ERROR(read_window(step, order_.at(first + i)));
    if (!inputs.empty()) std::copy(window_.begin(), window_.end() - 1, inputs.begin() + i * sequence_length_);
    if (!targets.empty())
      std::copy(window_.begin() + 1, window_.end(), targets.begin() + i * sequence_length_);
  }
  return ok_status();
}

// A byte is a token: the tokenizer of raw text.
Status TokenSource::read_window(StepIndex step, int64_t window) {
  const int64_t offset = window * sequence_length_;
  if (Status read = text_.read(offset, window_); !read.ok()) {
    return with_context(read, fmt::format("step {}", step.value));
  }
  const auto outside = [&](uint8_t token) { return token >= vocabulary_; };
  const auto found = std::find_if(window_.begin(), window_.end(), outside);
  if (found == window_.end()) return ok_status();
  const TextFiles::Place place = text_.place(offset + (found - window_.begin()));
  return invalid_argument("step {}: data: {} holds token {} at offset {}, vocab_size is {}", step.value,
                          place.path, *found, place.offset, vocabulary_);
}

}  // namespace penstock::worker
