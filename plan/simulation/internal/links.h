// How long messages take, by link.
#pragma once

#include <map>
#include <utility>

#include "plan/schedule/dataflow.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan::internal {

class Links {
 public:
  // `costs` has passed check_costs and must outlive this.
  explicit Links(const SimulationCosts& costs) : costs_(costs) {
    for (const LinkOverride& link : costs.links) overrides_[{link.source, link.target}] = link.costs;
  }

  LinkCosts between(RankIndex source, RankIndex target) const {
    const auto found = overrides_.find({source, target});
    if (found != overrides_.end()) return found->second;
    return {costs_.latency, costs_.ticks_per_message, costs_.bandwidth};
  }

  // That a tensor between `stage` and the next holds the link.
  Ticks occupancy(const LinkCosts& link, int stage) const {
    const int64_t bytes = costs_.message_bytes.empty() ? 0 : costs_.message_bytes[stage];
    return link.ticks_per_message + ticks_for_bytes(link.bandwidth, bytes);
  }

  // Rounded up; saturates at 2^62.
  static Ticks ticks_for_bytes(const Bandwidth& bandwidth, int64_t bytes) {
    if (bandwidth.bytes == 0) return 0;
    const __int128 ticks =
        (static_cast<__int128>(bytes) * bandwidth.ticks + bandwidth.bytes - 1) / bandwidth.bytes;
    constexpr Ticks kMost = Ticks{1} << 62;
    return ticks > kMost ? kMost : static_cast<Ticks>(ticks);
  }

 private:
  const SimulationCosts& costs_;
  std::map<std::pair<RankIndex, RankIndex>, LinkCosts> overrides_;
};

// The boundary that a tensor crosses: that between stages s and s+1 is s.
inline int boundary_of(const Passage& passage) {
  return passage.flow == Flow::Activation ? passage.source.value : passage.target.value;
}

}  // namespace penstock::plan::internal
