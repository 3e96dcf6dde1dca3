// The payload pools of one stage: for each of its blocks with experts, one for the rows that go into them, and where ranks
// share experts out one for the gradients of their outputs that come to them.
//
// Made before the first step with what the lowered program has alive at once; the passes of validation run between steps
// and use the same. Thread: the interpreter's.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "plan/schedule/payload_slots.h"
#include "plan/spec/job_spec.h"
#include "worker/buffers/payload_pool.h"
#include "worker/model/layout.h"

namespace penstock::worker {

// What a slot holds of either kind: rows of hidden values, as many as may come to the experts of this rank.
Place payload_place(const plan::JobSpec& job);

struct StagePayloadsShape {
  StageIndex stage;
  int activation_slots = 0;  // microbatches that may be in flight
  plan::PayloadHighWater slots;
  bool checks_memory = kChecksMemory;
};

// Of one block.
struct BlockPayloads {
  PayloadPool* inputs = nullptr;
  PayloadPool* output_gradients = nullptr;  // null where all experts are here
  int activation_slots = 0;
};

class StagePayloads {
 public:
  // `clock` outlives it. ResourceExhausted: no memory, with what it was for.
  static StatusOr<std::unique_ptr<StagePayloads>> create(const plan::JobSpec& job,
                                                         const std::vector<plan::Item>& items,
                                                         const StagePayloadsShape& shape, const Clock& clock);

  // Of a block of the stage that has experts.
  BlockPayloads of_block(LayerIndex layer) const;
  const std::vector<std::unique_ptr<PayloadPool>>& pools() const { return pools_; }
  int64_t bytes() const;

 private:
  StagePayloads() = default;

  int activation_slots_ = 0;
  std::vector<std::unique_ptr<PayloadPool>> pools_;
};

}  // namespace penstock::worker
