// What the layers of a stage take, by type, while it is switched on: in steps that are traced. A layer's time is its own work,
// without waits for other ranks in the midst of it. Costs two looks at the clock for each layer; allocates at construction
// alone. Thread: the interpreter's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layer_type.h"
#include "worker/collectives/wait_meter.h"

namespace penstock::worker {

// All layers of one type together.
struct LayerTime {
  plan::LayerType type = plan::LayerType::Block;
  int64_t forwards = 0;  // layers times microbatches
  Duration forward{};
  Duration backward{};  // both halves of a split one; with the second forward of a layer that is recomputed
};

class LayerTimer {
 public:
  // Without a clock nothing is timed. Clock and waits outlive it; waits may be null.
  LayerTimer(const plan::JobSpec& job, const std::vector<plan::Item>& items, const Clock* clock,
             const WaitMeter* waits);

  // Forgets what it has.
  void time_layers(bool on);
  std::span<const LayerTime> times() const { return times_; }

  // Runs `work`, a forward of the item: its first one in a microbatch.
  template <typename Work>
  auto forward(size_t item, const Work& work) {
    if (!on_) return work();
    const Span span = begin();
    auto result = work();
    LayerTime& time = times_[time_of_[item]];
    ++time.forwards;
    time.forward += end(span);
    return result;
  }
  // Any part of a backward.
  template <typename Work>
  auto backward(size_t item, const Work& work) {
    if (!on_) return work();
    const Span span = begin();
    auto result = work();
    times_[time_of_[item]].backward += end(span);
    return result;
  }

 private:
  struct Span {
    TimePoint start;
    Duration waited;
  };
  Duration waited() const { return waits_ == nullptr ? Duration::zero() : waits_->so_far(); }
  Span begin() const { return {clock_->now(), waited()}; }
  Duration end(const Span& span) const { return clock_->now() - span.start - (waited() - span.waited); }

  const Clock* clock_;
  const WaitMeter* waits_;
  bool on_ = false;
  std::vector<LayerTime> times_;  // each type that the stage has
  std::vector<size_t> time_of_;   // by item
};

}  // namespace penstock::worker
