// What a rank's data looks like, small enough to be compared between the ranks that read it.
//
// Every rank reads its own host's copy of the files. Two copies that differ would train inputs of one text
// on targets of another, without a sign of it. A digest holds names and sizes of the files and the bytes of
// kSamples samples of the run, spread evenly over it, the first and the last among them: another file,
// another version or another length is found; a change of a few bytes in between may not be.
//
// Thread: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "worker/data/text_files.h"

namespace penstock::worker {

// Plain data, the same size for every job: it travels as it is.
struct DataDigest {
  static constexpr int kFiles = 16;  // told one by one; the others are in `listing`
  static constexpr int kSamples = 64;

  struct File {
    uint64_t name_digest = 0;  // of the whole base name
    int64_t bytes = 0;
    std::array<char, 48> name{};  // the base name, cut; ends with a zero where there is room
  };

  int64_t files = 0;
  int64_t bytes = 0;
  uint64_t listing = 0;  // of all names and sizes, in order
  std::array<File, kFiles> first_files{};
  std::array<uint64_t, kSamples> samples{};  // in the order of the run
};

class DataFingerprint {
 public:
  // Reads the samples of the run that `job` describes. Errors: those of TextFiles; OutOfRange: less text than
  // one sample.
  static StatusOr<DataFingerprint> take(const plan::JobSpec& job);

  const DataDigest& digest() const { return digest_; }

  // FailedPrecondition at the first difference, with file and sizes; `me` and `other` say whose the digests
  // are: "rank 0".
  Status compare(const DataDigest& theirs, const std::string& me, const std::string& other) const;

 private:
  DataFingerprint(TextFiles text, int64_t sequence_length)
      : text_(std::move(text)), sequence_length_(sequence_length) {}
  void take_listing();
  Status take_samples(const plan::JobSpec& job);

  TextFiles text_;
  int64_t sequence_length_;
  DataDigest digest_;
  std::array<int64_t, DataDigest::kSamples> offsets_{};  // in the text, beside digest_.samples
};

}  // namespace penstock::worker
