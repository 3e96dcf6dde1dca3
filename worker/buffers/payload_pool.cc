#include "worker/buffers/payload_pool.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace penstock::worker {
namespace {

constexpr int64_t kGuardBytes = 64;  // keeps slots on cache lines

SlotMemory memory_of(const PayloadPoolShape& shape, void* data) {
  return {.data = data,
          .slot_bytes = shape.slot_bytes,
          .guard_bytes = shape.checks_memory ? kGuardBytes : 0,
          .poisons = shape.checks_memory};
}

const char* slots_hold(PayloadKind kind) {
  switch (kind) {
    case PayloadKind::Inputs:
      return "payload inputs";
    case PayloadKind::OutputGradients:
      return "payload output_gradients";
  }
  return "?";
}

}  // namespace

const char* name_of(PayloadKind kind) {
  switch (kind) {
    case PayloadKind::Inputs:
      return "inputs";
    case PayloadKind::OutputGradients:
      return "output_gradients";
  }
  return "?";
}

StatusOr<std::unique_ptr<PayloadPool>> PayloadPool::create(const PayloadPoolShape& shape,
                                                           const Clock& clock) {
  PENSTOCK_CHECK(shape.slots >= 0 && shape.slot_bytes % 64 == 0, "{} slots of {} bytes", shape.slots,
                 shape.slot_bytes);
  PENSTOCK_ASSIGN_OR_RETURN(
      kernels::Slab slab,
      kernels::Slab::allocate(shape.slots * memory_of(shape, nullptr).stride_bytes(),
                              fmt::format("{} slots for {} of stage {} layer {}", shape.slots,
                                          slots_hold(shape.kind), shape.stage.value, shape.layer.value)));
  return std::unique_ptr<PayloadPool>(new PayloadPool(shape, std::move(slab), clock));
}

PayloadPool::PayloadPool(const PayloadPoolShape& shape, kernels::Slab slab, const Clock& clock)
    : shape_(shape),
      slab_(std::move(slab)),
      ledger_({.stage = shape.stage, .layer = shape.layer, .holds = slots_hold(shape.kind)}, shape.slots,
              memory_of(shape, slab_.view().data), &clock) {}

}  // namespace penstock::worker
