#include "plan/generation/internal/building_blocks.h"

#include <algorithm>
#include <deque>

namespace penstock::plan::internal {
namespace {

using Slots = BuildingBlock::Slots;

constexpr int kFirstForward = kForward;
constexpr int kFirstGradient = kInputGradient;
constexpr int kSecondForward = kKinds + kForward;
constexpr int kSecondGradient = kKinds + kInputGradient;

// Which slots, modulo the period, the block's passes take on rank 0, and how far it goes down from rank to
// rank.
struct Pattern {
  int period;
  int forward_second, gradient_second, gradient_first;  // forward_first is 0
  int down, down_later, switch_at;                      // `down_later` from rank switch_at on
};

int next_at_or_after(int slot, int residue, int period) {
  return slot + ((residue - slot) % period + period) % period;
}

bool are_apart(const Slots& slots, int period) {
  const int residues[] = {slots.forward_first % period, slots.forward_second % period,
                          slots.gradient_second % period, slots.gradient_first % period};
  for (int i = 0; i < 4; ++i)
    for (int j = i + 1; j < 4; ++j)
      if (residues[i] == residues[j]) return false;
  return true;
}

bool fits_on_average(const Problem& problem, int rank, const Slots& slots, int period) {
  const MemoryDeltas& first = problem.deltas[problem.stage_of(rank, 0)];
  const MemoryDeltas& second = problem.deltas[problem.stage_of(rank, 1)];
  // With few microbatches they need not overlap at all.
  const int64_t in_flight_max = problem.microbatches;
  const int64_t first_slots = slots.gradient_first - slots.forward_first + 1;
  const int64_t second_slots = slots.gradient_second - slots.forward_second + 1;
  const int64_t held = first.forward * std::min(first_slots, in_flight_max * period) +
                       second.forward * std::min(second_slots, in_flight_max * period) -
                       first.weight_gradient - second.weight_gradient;
  return held <= problem.limits[rank] * period;
}

// Places the block as early as the pattern allows; nothing when two passes of a rank meet.
std::optional<BuildingBlock> place(const Problem& problem, const Pattern& pattern) {
  const int ranks = problem.ranks, last = ranks - 1, period = pattern.period;
  BuildingBlock block{period, std::vector<Slots>(ranks)};
  auto& slots = block.slots;
  const auto down = [&](int rank) { return rank < pattern.switch_at ? pattern.down : pattern.down_later; };
  for (int rank = 1; rank < ranks; ++rank)
    slots[rank].forward_first = slots[rank - 1].forward_first + down(rank);
  slots[last].forward_second =
      next_at_or_after(slots[last].forward_first + 1, pattern.forward_second - last, period);
  for (int rank = last - 1; rank >= 0; --rank)
    slots[rank].forward_second = slots[rank + 1].forward_second + 1;
  slots[0].gradient_second = next_at_or_after(slots[0].forward_second + 1, pattern.gradient_second, period);
  for (int rank = 1; rank < ranks; ++rank)
    slots[rank].gradient_second = slots[rank - 1].gradient_second + down(rank);
  slots[last].gradient_first =
      next_at_or_after(slots[last].gradient_second + 1, pattern.gradient_first - last, period);
  for (int rank = last - 1; rank >= 0; --rank)
    slots[rank].gradient_first = slots[rank + 1].gradient_first + 1;
  for (int rank = 0; rank < ranks; ++rank)
    if (!are_apart(slots[rank], period) || !fits_on_average(problem, rank, slots[rank], period))
      return std::nullopt;
  return block;
}

// With a switch in at most so many places that the patterns of all periods take a moment, whatever the ranks.
template <typename Visit>
void for_each_descent(int ranks, bool may_switch, Visit&& visit) {
  constexpr int kDownMax = 5;
  const int switches_max = may_switch ? std::min((1 << 17) / ranks, 16) : 0;
  const int stride = std::max(1, (ranks - 2 + switches_max) / std::max(switches_max, 1));
  for (int down = 1; down <= kDownMax; ++down) {
    visit(down, down, ranks);
    for (int later = 1; later <= kDownMax && switches_max > 0; ++later)
      for (int switch_at = 2; later != down && switch_at < ranks; switch_at += stride)
        visit(down, later, switch_at);
  }
}

// One rank's steps of the stamped block, in slot order.
class Stamp {
 public:
  Stamp(const Problem& problem, const BuildingBlock& block, int rank)
      : block_(block), microbatches_(problem.microbatches), lane_at_(block.period, -1) {
    const Slots& slots = block.slots[rank];
    set(kFirstForward, slots.forward_first);
    set(kSecondForward, slots.forward_second);
    set(kSecondGradient, slots.gradient_second);
    set(kFirstGradient, slots.gradient_first);
    order_.reserve(size_t{2} * kKinds * microbatches_);
  }

  std::vector<Step> run() && {
    const int begin = starts_[kFirstForward];
    const int end = starts_[kFirstGradient] + block_.period * (microbatches_ - 1);
    for (int slot = begin; slot <= end; ++slot) run_slot(slot);
    while (!pending_.empty()) run_weight_gradient();
    return std::move(order_);
  }

 private:
  void set(int lane, int slot) {
    starts_[lane] = slot;
    lane_at_[slot % block_.period] = lane;
  }

  void run_slot(int slot) {
    const int lane = lane_at_[slot % block_.period];
    const int microbatch = lane < 0 ? -1 : (slot - starts_[lane]) / block_.period;
    if (lane < 0 || slot < starts_[lane] || microbatch >= microbatches_) {
      if (!pending_.empty()) run_weight_gradient();
      return;
    }
    order_.push_back({microbatch, lane});
    if (lane % kKinds == kInputGradient)
      pending_.push_back({microbatch, lane - kInputGradient + kWeightGradient});
  }

  void run_weight_gradient() {
    order_.push_back(pending_.front());
    pending_.pop_front();
  }

  const BuildingBlock& block_;
  int microbatches_;
  int starts_[2 * kKinds] = {};
  std::vector<int> lane_at_;  // by slot modulo the period; -1: a free one
  std::deque<Step> pending_;  // weight gradients
  std::vector<Step> order_;
};

}  // namespace

std::vector<BuildingBlock> building_blocks(const Problem& problem, int period, int count_max) {
  std::vector<std::pair<int, Pattern>> by_depth;
  const auto add = [&](const Pattern& pattern) {
    if (const auto block = place(problem, pattern)) by_depth.emplace_back(block->depth(), pattern);
  };
  for (int second = 1; second < period; ++second) {
    for (int gradient = 1; gradient < period; ++gradient) {
      for (int last = 1; last < period; ++last) {
        if (second == gradient || second == last || gradient == last) continue;
        for_each_descent(problem.ranks, period == 6, [&](int down, int later, int switch_at) {
          add({period, second, gradient, last, down, later, switch_at});
        });
      }
    }
  }
  std::stable_sort(by_depth.begin(), by_depth.end(),
                   [](const auto& pattern, const auto& other) { return pattern.first < other.first; });
  std::vector<BuildingBlock> blocks;
  for (const auto& [depth, pattern] : by_depth) {
    if (static_cast<int>(blocks.size()) == count_max) break;
    blocks.push_back(*place(problem, pattern));
  }
  return blocks;
}

std::optional<Orders> stamped(const Problem& problem, const BuildingBlock& block) {
  Orders orders;
  for (int rank = 0; rank < problem.ranks; ++rank) orders.push_back(Stamp(problem, block, rank).run());
  const std::vector<int64_t> peaks = memory_peaks(problem, orders);
  for (int rank = 0; rank < problem.ranks; ++rank)
    if (peaks[rank] > problem.limits[rank]) return std::nullopt;
  return orders;
}

}  // namespace penstock::plan::internal
