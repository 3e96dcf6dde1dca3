// What the ranks of a job took, step after step, in each of its newest attempts: by rank, stage and kind of work.
//
// A sample is what a rank reported of one step: the median of the step's actions of one stage and kind, or the whole step
// of the rank, its waits, its optimizer. The first kWarmUpSteps of an attempt are left out. Of each series the newest
// samples are kept, between `window` and twice as many, so that a median over them is moved neither by a few bad steps nor
// by what was long ago. CPU time of single actions, times of layers by type, and a rank's waits in two (wait_parts.h), are known
// of traced steps only.
// What the ranks hold is kept as of the last step, and how rows came to experts as expert_loads.h says.
//
// Limits: kAttemptsMeasured attempts, kSeriesMax series each; the window shrinks where there are many.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "coordinator/core/jobs/expert_loads.h"
#include "coordinator/core/jobs/memory_use.h"
#include "coordinator/core/jobs/wait_parts.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

inline constexpr size_t kAttemptsMeasured = 4;
inline constexpr size_t kSeriesMax = 1 << 17;
inline constexpr int64_t kWarmUpSteps = 2;

enum class MeasuredKind : uint8_t {
  Forward,   // one action of a stage, as the three below
  Backward,  // fused
  InputGradient,
  WeightGradient,
  Optimizer,  // of a rank and a step, as the rest
  Wait,       // for peers
  Step,
  WaitDependency,  // of a traced step: see wait_parts.h
  WaitTransfer,
  LayerForward,  // of a traced step: one layer of a type of a stage, one microbatch
  LayerBackward,
};
inline constexpr int kMeasuredKinds = 11;

struct MeasuredSeries {
  RankIndex rank{};    // in the job
  StageIndex stage{};  // unset where the kind is of a rank
  MeasuredKind kind = MeasuredKind::Forward;
  std::optional<plan::LayerType> layer{};  // of the kinds of layers
  int64_t count = 0;                       // samples that were ever taken
  std::vector<float> seconds{};            // the newest, oldest first
  std::vector<float> cpu_seconds{};        // of the thread; of fewer steps

  bool operator==(const MeasuredSeries&) const = default;
};

struct AttemptMeasurements {
  int64_t attempt = 0;
  std::string schedule{};
  std::vector<std::string> stages{};  // items of each, as "embedding 0 1"
  int64_t steps = 0;                  // measured
  std::vector<MeasuredSeries> series{};
  std::vector<RankMemoryView> memory{};   // [rank]
  std::vector<LayerLoad> expert_loads{};  // by layer; none without experts
  LoadHistory history{};

  bool operator==(const AttemptMeasurements&) const = default;
};

struct MedianAndTail {
  double median = 0;
  double p95 = 0;
};
// Both 0 of no samples.
MedianAndTail summarised(const std::vector<float>& samples);

class Measurements {
 public:
  // From here on reports are of this attempt. `stages`: items of each; `held`: stages by ranks that hold them, all together.
  void begin(int64_t attempt, const std::string& schedule, std::vector<std::string> stages, size_t held);
  // The reports of one step, by rank.
  void add(const std::vector<StepReport>& reports);
  // CPU times and those of layers, of a traced step of one rank.
  void add(const StepTrace& trace);
  // Of a traced step; [rank].
  void add(const std::vector<WaitParts>& waits);
  // What the ranks of the newest attempt hold; [rank].
  void set_memory(const std::vector<RankMemoryView>& ranks);
  // As it was stored; oldest first.
  void restore(AttemptMeasurements attempt);
  void clear() { attempts_.clear(); }

  // Oldest first; the last one may have no step yet.
  const std::deque<AttemptMeasurements>& attempts() const { return attempts_; }
  // Whether there is anything of the newest attempt to keep.
  bool has_steps() const { return !attempts_.empty() && attempts_.back().steps > 0; }
  size_t bytes() const;

 private:
  // What a series is of.
  struct Key {
    RankIndex rank{};
    StageIndex stage{};  // unset: of the rank
    MeasuredKind kind = MeasuredKind::Forward;
    std::optional<plan::LayerType> layer{};
    auto operator<=>(const Key&) const = default;
  };
  void add_sample(size_t& place, const Key& key, double seconds);
  MeasuredSeries* find(size_t& place, const Key& key);

  std::deque<AttemptMeasurements> attempts_{};
  std::map<Key, size_t> places_{};  // of the newest attempt's series
  ExpertLoadRecorder loads_{};      // of the newest attempt
  int64_t reported_ = 0;            // steps of the newest attempt, warm-up included
  size_t window_ = 0;
};

}  // namespace penstock::coordinator
