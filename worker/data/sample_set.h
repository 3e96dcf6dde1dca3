// The samples of a job's data, in the order of a run.
//
// A sample is a window of sequence_length + 1 tokens of a source at stride sequence_length: the first
// sequence_length are inputs, the last sequence_length targets. Sources without weights are one source, one
// file behind another. Thread: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "worker/data/sample_order.h"
#include "worker/data/token_stream.h"

namespace penstock::worker {

class SampleSet {
 public:
  struct Options {
    uint64_t seed = 0;
    bool shuffled = true;
    int64_t vocabulary = 0;
  };
  // Errors: those of TokenStream; OutOfRange: a source shorter than one sample. Each begins with "data: ".
  static StatusOr<SampleSet> open(const plan::DataSpec& data, const Options& options);

  const SampleOrder& order() const { return order_; }
  const std::vector<TokenStream>& sources() const { return sources_; }
  // The files of a source, or of all for -1, cut to three.
  std::string names(int32_t source = -1) const;

  // Writes the tokens of a sample, sequence_length + 1 of them. InvalidArgument: a token outside the
  // vocabulary. DataLoss: a file that has changed. Each begins with "data: " and names file and place.
  Status read(int64_t index, std::span<int32_t> window) const;

  // Where a sample begins.
  struct Start {
    const TokenStream* source = nullptr;
    int64_t token = 0;
  };
  Start start(int64_t index) const;

 private:
  SampleSet(std::vector<TokenStream> sources, SampleOrder order, int64_t sequence_length, int64_t vocabulary)
      : sources_(std::move(sources)),
        order_(std::move(order)),
        sequence_length_(sequence_length),
        vocabulary_(vocabulary) {}

  std::vector<TokenStream> sources_;
  SampleOrder order_;
  int64_t sequence_length_;
  int64_t vocabulary_;
};

}  // namespace penstock::worker
