#include "worker/model/layer_timer.h"

#include <algorithm>

namespace penstock::worker {

LayerTimer::LayerTimer(const plan::JobSpec& job, const std::vector<plan::Item>& items, const Clock* clock,
                       const WaitMeter* waits)
    : clock_(clock), waits_(waits) {
  for (const plan::Item& item : items) {
    const plan::LayerType type = plan::layer_type_of(job, item);
    const auto known =
        std::find_if(times_.begin(), times_.end(), [&](const LayerTime& time) { return time.type == type; });
    time_of_.push_back(static_cast<size_t>(known - times_.begin()));
    if (known == times_.end()) times_.push_back({.type = type});
  }
}

void LayerTimer::time_layers(bool on) {
  on_ = on && clock_ != nullptr;
  for (LayerTime& time : times_) time = {.type = time.type};
}

}  // namespace penstock::worker
