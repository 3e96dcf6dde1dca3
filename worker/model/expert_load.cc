#include "worker/model/expert_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace penstock::worker {

void ExpertLoad::begin(StepIndex of) {
  step = of;
  std::fill(rows.begin(), rows.end(), 0);
  dropped = sequences = tokens = 0;
  balance = z = 0;
}

std::string described(const ExpertLoad& load) {
  const auto [least, most] = std::minmax_element(load.rows.begin(), load.rows.end());
  const int64_t all = std::accumulate(load.rows.begin(), load.rows.end(), int64_t{0});
  const auto mean = [](double sum, int64_t count) {
    return count == 0 ? 0 : sum / static_cast<double>(count);
  };
  return fmt::format(
      "layer {}: {:.0f} rows an expert, {} (expert {}) to {} (expert {}); {} choices dropped; balance loss {:.4g}, "
      "z-loss {:.4g}",
      load.layer.value, mean(static_cast<double>(all), static_cast<int64_t>(load.rows.size())), *least,
      load.first_expert + (least - load.rows.begin()), *most, load.first_expert + (most - load.rows.begin()),
      load.dropped, mean(load.balance, load.sequences), mean(load.z, load.tokens));
}

}  // namespace penstock::worker
