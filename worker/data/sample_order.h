// Which window of which source each sample of a run is: a pure function of (seed, index of the sample), the
// same on every rank and after every restart.
//
// Sources with weights take turns so that after any number of samples each is as near to its share as it can
// be: the source that lacks most is next. Shares are whole parts of kParts, the pattern repeats after kParts
// samples. Inside a source, each pass (epoch) over its windows is in a keyed permutation of its own.
//
// Thread: any. Never allocates after construction.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::worker {

class SampleOrder {
 public:
  static constexpr int64_t kParts = 65536;
  static constexpr int64_t kEndless = INT64_MAX;

  struct Options {
    std::vector<int64_t> windows;  // of each source, at least 1; at most 1,024 sources
    std::vector<double> weights;   // beside windows, above 0; may be left out for one source
    uint64_t seed = 0;
    int64_t epochs = 1;    // passes over a source; 0: without end
    bool shuffled = true;  // otherwise every pass is in the order of the windows
  };
  explicit SampleOrder(const Options& options);

  struct Sample {
    int32_t source = 0;
    int64_t window = 0;
  };
  Sample at(int64_t index) const;  // 0 <= index < samples()

  // Samples until a source has been passed over `epochs` times and is asked for one more; kEndless without
  // end.
  int64_t samples() const { return samples_; }
  // The source that ends the samples; -1 when there is no end.
  int32_t first_to_run_out() const { return first_to_run_out_; }

 private:
  // A sample of the repeating pattern: its source, and how many of that source came before in the pattern.
  struct Turn {
    int32_t source = 0;
    int32_t before = 0;
  };
  struct Source {
    int64_t windows = 0;
    int64_t turns = 0;  // in a pattern
  };
  void share_out(const std::vector<double>& weights);
  void take_turns();
  void find_the_end(int64_t epochs);

  std::vector<Source> sources_;
  std::vector<Turn> pattern_;
  uint64_t seed_;
  bool shuffled_;
  int64_t samples_ = kEndless;
  int32_t first_to_run_out_ = -1;
};

}  // namespace penstock::worker
