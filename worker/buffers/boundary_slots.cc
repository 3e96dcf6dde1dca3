#include "worker/buffers/boundary_slots.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace penstock::worker {
namespace {

const char* name_of(BoundaryState state) {
  switch (state) {
    case BoundaryState::Free:
      return "free";
    case BoundaryState::Filling:
      return "being filled";
    case BoundaryState::Full:
      return "full";
    case BoundaryState::Sending:
      return "being sent";
  }
  return "?";
}

}  // namespace

BoundarySlots::BoundarySlots(std::string name, int slots, int64_t slot_bytes, kernels::SlabView slab)
    : name_(std::move(name)), slot_bytes_(slot_bytes), slab_(slab), slots_(slots) {
  PENSTOCK_CHECK_LE(slots * slot_bytes, slab.bytes);
}

Status BoundarySlots::fill(int slot, MicrobatchIndex microbatch) {
  PENSTOCK_RETURN_IF_ERROR(expect(slot, BoundaryState::Free));
  slots_[slot] = {BoundaryState::Filling, microbatch};
  in_use_peak_ = std::max(in_use_peak_, ++in_use_);
  return ok_status();
}

Status BoundarySlots::filled(int slot) {
  PENSTOCK_RETURN_IF_ERROR(expect(slot, BoundaryState::Filling));
  slots_[slot].state = BoundaryState::Full;
  return ok_status();
}

Status BoundarySlots::check_full(int slot) const {
  return expect(slot, BoundaryState::Full);
}

Status BoundarySlots::send(int slot) {
  PENSTOCK_RETURN_IF_ERROR(expect(slot, BoundaryState::Full));
  slots_[slot].state = BoundaryState::Sending;
  return ok_status();
}

Status BoundarySlots::free_read(int slot) {
  PENSTOCK_RETURN_IF_ERROR(expect(slot, BoundaryState::Full));
  free(slot);
  return ok_status();
}

Status BoundarySlots::free_sent(int slot) {
  PENSTOCK_RETURN_IF_ERROR(expect(slot, BoundaryState::Sending));
  free(slot);
  return ok_status();
}

void BoundarySlots::free_all() {
  for (int slot = 0; slot < capacity(); ++slot) {
    if (slots_[slot].state != BoundaryState::Free) free(slot);
  }
}

void* BoundarySlots::data(int slot) const {
  PENSTOCK_CHECK(slot >= 0 && slot < capacity(), "{}: slot {} of {}", name_, slot, capacity());
  return static_cast<char*>(slab_.data) + slot * slot_bytes_;
}

Status BoundarySlots::expect(int slot, BoundaryState state) const {
  if (slot < 0 || slot >= capacity()) {
    return failed_precondition("{}: slot {} of {} asked for", name_, slot, capacity());
  }
  const Slot& found = slots_[slot];
  if (found.state == state) return ok_status();
  return failed_precondition("{}: slot {} expected {}, found {} (last used by microbatch {})", name_, slot,
                             name_of(state), name_of(found.state), found.microbatch.value);
}

void BoundarySlots::free(int slot) {
#ifndef NDEBUG
  std::memset(data(slot), 0xFF, static_cast<size_t>(slot_bytes_));
#endif
  slots_[slot].state = BoundaryState::Free;
  --in_use_;
}

}  // namespace penstock::worker
