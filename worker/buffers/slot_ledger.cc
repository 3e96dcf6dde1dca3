#include "worker/buffers/slot_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace penstock::worker {
namespace {

constexpr uint64_t kGuardWord = 0x7e4ca9d35b81f206;

}  // namespace

std::string described(const SlotUse& use) {
  const std::string stage = fmt::format("stage {}", use.stage.value);
  return use.layer.is_set() ? fmt::format("{} layer {}", stage, use.layer.value) : stage;
}

SlotLease::SlotLease(SlotLedger& ledger, int slot)
    : ledger_(&ledger),
      use_(ledger.use_),
      slot_(slot),
      generation_(ledger.slots_[static_cast<size_t>(slot)].generation),
      holder_(ledger.slots_[static_cast<size_t>(slot)].holder) {}

SlotLease::SlotLease(SlotLease&& other) noexcept
    : ledger_(std::exchange(other.ledger_, nullptr)),
      use_(other.use_),
      slot_(other.slot_),
      generation_(other.generation_),
      holder_(other.holder_) {}

SlotLease& SlotLease::operator=(SlotLease&& other) noexcept {
  if (this == &other) return *this;
  if (held()) release();
  ledger_ = std::exchange(other.ledger_, nullptr);
  use_ = other.use_;
  slot_ = other.slot_;
  generation_ = other.generation_;
  holder_ = other.holder_;
  return *this;
}

SlotLease::~SlotLease() {
  if (held()) release();
}

int SlotLease::slot() const {
  PENSTOCK_CHECK(held(), "slot() of a lease that was released or never held: {}", described());
  return slot_;
}

void* SlotLease::data() const {
  PENSTOCK_CHECK(held(), "use after release of {}", described());
  return ledger_->data(slot_, generation_);
}

void SlotLease::release() {
  PENSTOCK_CHECK(held(), "second release of {}", described());
  std::exchange(ledger_, nullptr)->release(slot_, generation_);
}

std::string SlotLease::described() const {
  return fmt::format("{} slot {} of {}, generation {}, which microbatch {} held", use_.holds, slot_,
                     worker::described(use_), generation_, holder_.value);
}

SlotLedger::SlotLedger(const SlotUse& use, int slots, const SlotMemory& memory, const Clock* clock)
    : use_(use), memory_(memory), clock_(clock), slots_(static_cast<size_t>(slots)) {
  PENSTOCK_CHECK(memory.slot_bytes >= 0 && memory.guard_bytes % sizeof(kGuardWord) == 0,
                 "{} bytes, {} of guards", memory.slot_bytes, memory.guard_bytes);
  for (int slot = 0; slot < slots; ++slot) write_guards(slot);
}

SlotLedger::~SlotLedger() {
  PENSTOCK_CHECK(held_ == 0, "{} pool of {} ends while {} of its {} slots are leased, {}", use_.holds,
                 described(use_), held_, capacity(), oldest_lease());
}

StatusOr<SlotLease> SlotLedger::take(int slot, MicrobatchIndex holder) {
  Slot& wanted = slots_[static_cast<size_t>(slot)];
  if (wanted.held) {
    return resource_exhausted(
        "{}: microbatch {} asked for {} slot {}, which microbatch {} holds; {} of {} slots are held, {}",
        described(use_), holder.value, use_.holds, slot, wanted.holder.value, held_, capacity(),
        oldest_lease());
  }
  wanted.held = true;
  wanted.holder = holder;
  wanted.taken_at = ++leases_;
  if (clock_ != nullptr) wanted.since = clock_->now();
  ++wanted.generation;
  ++held_;
  held_peak_ = std::max(held_peak_, held_);
  return SlotLease(*this, slot);
}

StatusOr<SlotLease> SlotLedger::take_lowest(MicrobatchIndex holder) {
  for (int slot = 0; slot < capacity(); ++slot) {
    if (!slots_[static_cast<size_t>(slot)].held) return take(slot, holder);
  }
  return resource_exhausted("{}: microbatch {} asked for a slot of {}; all {} are held, {}", described(use_),
                            holder.value, use_.holds, capacity(), oldest_lease());
}

Duration SlotLedger::take_longest_lease() {
  Duration longest = std::exchange(longest_ended_, Duration::zero());
  for (const Slot& slot : slots_) {
    if (slot.held) longest = std::max(longest, age(slot));
  }
  return longest;
}

void SlotLedger::release(int slot, uint64_t generation) {
  void* const memory = data(slot, generation);
  check_guards(slot);
  // All bits set is a NaN in every float type and no token at all: whoever reads on shows at once.
  if (memory_.poisons && memory_.slot_bytes > 0) {
    std::memset(memory, 0xFF, static_cast<size_t>(memory_.slot_bytes));
  }
  Slot& given_back = slots_[static_cast<size_t>(slot)];
  longest_ended_ = std::max(longest_ended_, age(given_back));
  given_back.held = false;
  --held_;
}

void* SlotLedger::data(int slot, uint64_t generation) const {
  const Slot& asked = slots_[static_cast<size_t>(slot)];
  PENSTOCK_CHECK(asked.held && asked.generation == generation,
                 "{}: {} slot {} is used under generation {}, but {} generation {}, of microbatch {}",
                 described(use_), use_.holds, slot, generation, asked.held ? "held under" : "free since",
                 asked.generation, asked.holder.value);
  return place(slot);
}

char* SlotLedger::place(int slot) const {
  return static_cast<char*>(memory_.data) + slot * memory_.stride_bytes() + memory_.guard_bytes;
}

void SlotLedger::write_guards(int slot) {
  const auto word = sizeof(kGuardWord);
  for (int64_t at = 0; at < memory_.guard_bytes; at += word) {
    std::memcpy(place(slot) - memory_.guard_bytes + at, &kGuardWord, word);
    std::memcpy(place(slot) + memory_.slot_bytes + at, &kGuardWord, word);
  }
}

void SlotLedger::check_guards(int slot) const {
  const auto word = sizeof(kGuardWord);
  for (int64_t at = 0; at < memory_.guard_bytes; at += word) {
    const bool before = std::memcmp(place(slot) - memory_.guard_bytes + at, &kGuardWord, word) == 0;
    const bool behind = std::memcmp(place(slot) + memory_.slot_bytes + at, &kGuardWord, word) == 0;
    PENSTOCK_CHECK(before && behind,
                   "{}: somebody wrote {} {} slot {} of {} bytes, which microbatch {} holds", described(use_),
                   before ? "behind the end of" : "before the begin of", use_.holds, slot, memory_.slot_bytes,
                   slots_[static_cast<size_t>(slot)].holder.value);
  }
}

std::string SlotLedger::oldest_lease() const {
  const auto oldest = std::min_element(slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) {
    return a.held != b.held ? a.held : a.taken_at < b.taken_at;
  });
  if (oldest == slots_.end() || !oldest->held) return "there is no lease";
  const std::string lease = fmt::format("the oldest lease is microbatch {}'s on slot {}",
                                        oldest->holder.value, oldest - slots_.begin());
  return clock_ == nullptr ? lease : fmt::format("{}, {:.3f} s old", lease, to_seconds(age(*oldest)));
}

Duration SlotLedger::age(const Slot& slot) const {
  return clock_ == nullptr ? Duration::zero() : clock_->now() - slot.since;
}

}  // namespace penstock::worker
