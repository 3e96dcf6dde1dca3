// What a rank's data looks like, small enough to be compared between the ranks that read it.
//
// Every rank reads its own host's copy of the files. Two copies that differ would train inputs of one text
// on targets of another, without a sign of it. A digest holds names and sizes of the files, those of
// validation behind those of training, and the tokens of samples: kTrainingSamples spread evenly over the
// run, the first and the last among them, and kValidationSamples over a validation pass. Another file,
// another version or another length is found; a change of a few tokens in between may not be.
//
// Thread: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "worker/data/token_source.h"

namespace penstock::worker {

// Plain data, the same size for every job: it travels as it is.
struct DataDigest {
  static constexpr int kFiles = 16;  // told one by one; the others are in `listing`
  static constexpr int kTrainingSamples = 64;
  static constexpr int kValidationSamples = 16;

  struct File {
    uint64_t name_digest = 0;  // of the whole base name
    int64_t bytes = 0;
    std::array<char, 48> name{};  // the base name, cut; ends with a zero where there is room
  };

  int64_t files = 0;
  int64_t bytes = 0;
  uint64_t listing = 0;  // of all names and sizes, in order
  std::array<File, kFiles> first_files{};
  // In the order of the run, then of a validation pass; 0 where there is none.
  std::array<uint64_t, kTrainingSamples + kValidationSamples> samples{};
};

class DataFingerprint {
 public:
  // Reads the samples of the run that `job` describes. Errors: those of TokenSource.
  static StatusOr<DataFingerprint> take(const plan::JobSpec& job);

  const DataDigest& digest() const { return digest_; }

  // FailedPrecondition at the first difference, with file and sizes; `me` and `other` say whose the digests
  // are: "rank 0".
  Status compare(const DataDigest& theirs, const std::string& me, const std::string& other) const;

 private:
  struct File {
    std::string name;
    int64_t bytes = 0;
  };
  DataFingerprint() = default;
  void add_files(const SampleSet& set);
  void take_listing();
  // `count` samples from the first `used` of the set, into digest_.samples from `begin` on.
  Status take_samples(const SampleSet& set, int64_t sequence_length, int64_t used, int begin, int count);

  DataDigest digest_;
  std::vector<File> files_;
  std::vector<std::string> places_;  // beside digest_.samples: "9 tokens of a.txt from place 80 on"
};

}  // namespace penstock::worker
