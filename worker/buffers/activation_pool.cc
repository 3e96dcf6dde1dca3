#include "worker/buffers/activation_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace penstock::worker {

ActivationLease::ActivationLease(ActivationLease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), slot_(other.slot_), generation_(other.generation_) {}

ActivationLease& ActivationLease::operator=(ActivationLease&& other) noexcept {
  if (this == &other) return *this;
  if (held()) release();
  pool_ = std::exchange(other.pool_, nullptr);
  slot_ = other.slot_;
  generation_ = other.generation_;
  return *this;
}

ActivationLease::~ActivationLease() {
  if (held()) release();
}

int ActivationLease::slot() const {
  PENSTOCK_CHECK(held(), "slot() of a lease that was released or never held; it last held slot {}", slot_);
  return slot_;
}

void* ActivationLease::data() const {
  PENSTOCK_CHECK(held(), "use after release of activation slot {}, generation {}", slot_, generation_);
  return pool_->data(slot_, generation_);
}

void ActivationLease::release() {
  PENSTOCK_CHECK(held(), "second release of activation slot {}, generation {}", slot_, generation_);
  std::exchange(pool_, nullptr)->release(slot_, generation_);
}

ActivationPool::ActivationPool(StageIndex stage, int slots, int64_t slot_bytes, kernels::SlabView slab)
    : stage_(stage), slot_bytes_(slot_bytes), slab_(slab), slots_(slots) {
  PENSTOCK_CHECK(slot_bytes >= 0, "slot_bytes {}", slot_bytes);
  PENSTOCK_CHECK_LE(slots * slot_bytes, slab.bytes);
}

ActivationPool::~ActivationPool() {
  PENSTOCK_CHECK(held_ == 0, "pool of stage {} ends while {} of its {} slots are leased", stage_.value, held_,
                 capacity());
}

StatusOr<ActivationLease> ActivationPool::acquire(int slot, MicrobatchIndex holder) {
  if (slot < 0 || slot >= capacity()) {
    return invalid_argument("stage {} has {} activation slots; microbatch {} asked for slot {}", stage_.value,
                            capacity(), holder.value, slot);
  }
  Slot& wanted = slots_[slot];
  if (wanted.held) {
    const auto oldest = std::min_element(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
      return a.held != b.held ? a.held : a.acquired_at < b.acquired_at;
    });
    return resource_exhausted(
        "stage {}: microbatch {} asked for activation slot {}, which microbatch {} holds; {} of {} slots are "
        "held, "
        "the oldest lease is microbatch {}'s on slot {}",
        stage_.value, holder.value, slot, wanted.holder.value, held_, capacity(), oldest->holder.value,
        oldest - slots_.begin());
  }
  wanted.held = true;
  wanted.holder = holder;
  wanted.acquired_at = ++acquisitions_;
  ++wanted.generation;
  ++held_;
  held_peak_ = std::max(held_peak_, held_);
  return ActivationLease(this, slot, wanted.generation);
}

void ActivationPool::release(int slot, uint64_t generation) {
  Slot& given_back = slots_[slot];
  PENSTOCK_CHECK(given_back.held, "stage {}: slot {} is not held", stage_.value, slot);
  PENSTOCK_CHECK_EQ(given_back.generation, generation);
#ifndef NDEBUG
  // All bits set is a NaN in every float type and no token at all: whoever reads on shows at once.
  if (slot_bytes_ > 0) std::memset(data(slot, generation), 0xFF, static_cast<size_t>(slot_bytes_));
#endif
  given_back.held = false;
  --held_;
}

void* ActivationPool::data(int slot, uint64_t generation) const {
  const Slot& asked = slots_[slot];
  PENSTOCK_CHECK(asked.held, "stage {}: slot {} is not held", stage_.value, slot);
  PENSTOCK_CHECK_EQ(asked.generation, generation);
  return static_cast<char*>(slab_.data) + slot * slot_bytes_;
}

}  // namespace penstock::worker
