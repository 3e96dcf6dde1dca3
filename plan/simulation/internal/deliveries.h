// When every boundary tensor was made and when it reached its reader.
#pragma once

#include <optional>
#include <vector>

#include "plan/schedule/dataflow.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan::internal {

struct TimedDelivery {
  Ticks produced = -1;  // end of its producer; -1 until then
  Ticks arrived = 0;
  bool is_remote = false;  // between two ranks
};

class Deliveries {
 public:
  Deliveries(int stages, int microbatches)
      : stages_(stages),
        microbatches_(static_cast<size_t>(microbatches)),
        cells_(2 * static_cast<size_t>(stages) * microbatches_) {}

  TimedDelivery& operator[](const Passage& passage) { return cells_[index(passage)]; }
  const TimedDelivery& operator[](const Passage& passage) const { return cells_[index(passage)]; }

  // What `work` reads; null when it reads nothing.
  const TimedDelivery* input_of(const Work& work) const {
    const auto passage = incoming(work, stages_);
    return passage ? &(*this)[*passage] : nullptr;
  }

 private:
  size_t index(const Passage& passage) const {
    const auto row = static_cast<size_t>(passage.flow) * static_cast<size_t>(stages_) +
                     static_cast<size_t>(passage.source.value);
    return row * microbatches_ + static_cast<size_t>(passage.microbatch.value);
  }

  int stages_;
  size_t microbatches_;
  std::vector<TimedDelivery> cells_;  // [flow, source stage, microbatch]
};

}  // namespace penstock::plan::internal
