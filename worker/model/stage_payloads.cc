#include "worker/model/stage_payloads.h"

#include "base/check.h"
#include "worker/model/activation_type.h"

namespace penstock::worker {
Place payload_place(const plan::JobSpec& job) {
  return Layout().place(activation_type(job),
                        {job.expert_parts() * job.local_expert_rows(), job.model.hidden_size});
}

StatusOr<std::unique_ptr<StagePayloads>> StagePayloads::create(const plan::JobSpec& job,
                                                               const std::vector<plan::Item>& items,
                                                               const StagePayloadsShape& shape,
                                                               const Clock& clock) {
  std::unique_ptr<StagePayloads> payloads(new StagePayloads());
  payloads->activation_slots_ = shape.activation_slots;
  Layout slot;
  const Place rows = payload_place(job);
  slot.place(rows.type, {rows.shape[0], rows.shape[1]});
  const auto add = [&](LayerIndex layer, PayloadKind kind, int slots) -> Status {
    PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<PayloadPool> pool,
                              PayloadPool::create({.stage = shape.stage,
                                                   .layer = layer,
                                                   .kind = kind,
                                                   .slots = slots,
                                                   .slot_bytes = slot.bytes(),
                                                   .checks_memory = shape.checks_memory},
                                                  clock));
    payloads->pools_.push_back(std::move(pool));
    return ok_status();
  };
  for (const plan::Item& item : items) {
    if (item.kind != plan::ItemKind::Block || !job.model.has_experts(item.layer)) continue;
    const bool recomputed = job.recomputes(item.layer);
    const int inputs = recomputed ? shape.slots.recomputed_inputs : shape.slots.inputs;
    PENSTOCK_RETURN_IF_ERROR(add(item.layer, PayloadKind::Inputs, inputs));
    if (job.parallel.expert == 1) continue;
    PENSTOCK_RETURN_IF_ERROR(add(item.layer, PayloadKind::OutputGradients, shape.slots.output_gradients));
  }
  return payloads;
}

BlockPayloads StagePayloads::of_block(LayerIndex layer) const {
  BlockPayloads found{.activation_slots = activation_slots_};
  for (const std::unique_ptr<PayloadPool>& pool : pools_) {
    if (pool->layer() != layer) continue;
    (pool->kind() == PayloadKind::Inputs ? found.inputs : found.output_gradients) = pool.get();
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
