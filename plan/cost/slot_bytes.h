// Bytes of what the worker's slots and workspace hold, tensor by tensor (memory.h lists them).
//
// Sums saturate at 2^63 - 1. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// One activation slot of a stage that holds `items`, routes included.
int64_t activation_slot_bytes(const JobSpec& job, const std::vector<Item>& items, BackwardForm backward);
// Of it, what routers decided.
int64_t route_slot_bytes(const JobSpec& job, const std::vector<Item>& items);

// One slot for what those of `items` that are recomputed save between I and W, routes included.
int64_t recomputation_slot_bytes(const JobSpec& job, const std::vector<Item>& items);
// Of it, what routers decided.
int64_t recomputed_route_bytes(const JobSpec& job, const std::vector<Item>& items);
// The widest of those blocks, which runs in scratch memory; 0: none of `items` is recomputed.
int64_t recomputation_scratch_bytes(const JobSpec& job, const std::vector<Item>& items,
                                    BackwardForm backward);

// One slot for the rows that go into a block's experts; 0 of another item.
int64_t payload_slot_bytes(const JobSpec& job, const Item& item);

// Of an activation slot, gate and up of the rows that go into a block's experts.
int64_t expert_gate_up_bytes(const JobSpec& job);

// One tensor that passes between two stages.
int64_t boundary_slot_bytes(const JobSpec& job);

// What any action of any stage works in, without what recomputation takes.
int64_t action_workspace_bytes(const JobSpec& job);

}  // namespace penstock::plan
