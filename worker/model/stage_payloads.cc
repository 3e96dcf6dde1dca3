#include "worker/model/stage_payloads.h"

#include "base/check.h"
#include "worker/model/activation_type.h"
#include "worker/model/layout.h"

namespace penstock::worker {
namespace {

// Rows of hidden values, as many as may come to the experts of this rank.
int64_t slot_bytes(const plan::JobSpec& job) {
  Layout layout;
  layout.place(activation_type(job), {job.local_expert_rows(), job.model.hidden_size});
  return layout.bytes();
}

}  // namespace

StatusOr<std::unique_ptr<StagePayloads>> StagePayloads::create(const plan::JobSpec& job,
                                                               const std::vector<plan::Item>& items,
                                                               const StagePayloadsShape& shape,
                                                               const Clock& clock) {
  std::unique_ptr<StagePayloads> payloads(new StagePayloads());
  payloads->activation_slots_ = shape.activation_slots;
  for (const plan::Item& item : items) {
    if (item.kind != plan::ItemKind::Block || !job.model.has_experts(item.layer)) continue;
    const bool recomputed = job.recomputes(item.layer);
    const PayloadPoolShape inputs{.stage = shape.stage,
                                  .layer = item.layer,
                                  .kind = PayloadKind::Inputs,
                                  .slots = recomputed ? shape.slots.recomputed_inputs : shape.slots.inputs,
                                  .slot_bytes = slot_bytes(job),
                                  .checks_memory = shape.checks_memory};
    PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<PayloadPool> pool, PayloadPool::create(inputs, clock));
    payloads->pools_.push_back(std::move(pool));
  }
  return payloads;
}

BlockPayloads StagePayloads::of_block(LayerIndex layer) const {
  BlockPayloads found{.activation_slots = activation_slots_};
  for (const std::unique_ptr<PayloadPool>& pool : pools_) {
    if (pool->layer() == layer) found.inputs = pool.get();
  }
  PENSTOCK_CHECK(found.inputs != nullptr, "no payload pool of layer {}", layer.value);
  return found;
}

int64_t StagePayloads::bytes() const {
  int64_t bytes = 0;
  for (const std::unique_ptr<PayloadPool>& pool : pools_) bytes += pool->bytes();
  return bytes;
}

}  // namespace penstock::worker
