// What the layers of a job cost, from a file: either costs of layers (layer_costs.h), one for each item of the model in
// order (embedding, blocks, head), or what `penstock fit -o json` prints, which has costs by type (embedding, block, head;
// "block with experts" where it says it, else those are blocks too). Bytes that the file does not say (where all of them
// are 0) are predicted from the job: plan/cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/interop/layer_costs.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// Of an item of the model.
struct ItemTime {
  int64_t forward_ns = 0;
  int64_t backward_ns = 0;
};
// A layer for each item, by name and times, without bytes. times: of all items, in model order.
LayerCosts layers_of(const JobSpec& job, const std::vector<ItemTime>& times);

// Times alone, and bytes where the file says them. InvalidArgument: "PATH: layers: expected 10, embedding, blocks and head,
// found 8".
StatusOr<LayerCosts> job_times_from_json(const std::string& text, const std::string& path,
                                         const JobSpec& job);

// Whether the file's times are of any size of microbatch: every type has a + b x tokens. InvalidArgument: no JSON.
StatusOr<bool> times_follow_tokens(const std::string& text);

// Which blocks recompute: those that the job says, or any: then they may keep their input, and their backward runs the
// forward once more.
enum class Recomputation : uint8_t { AsWritten, Planned };

// Predicts the bytes of costs that say none, and what every rank holds beside; offers recomputation where it is planned.
Status complete_bytes(const JobSpec& job, Recomputation recomputation, LayerCosts& costs);

// Bytes of the job's items, predicted; costs.layers are one an item.
Status predict_bytes(const JobSpec& job, LayerCosts& costs);

}  // namespace penstock::plan
