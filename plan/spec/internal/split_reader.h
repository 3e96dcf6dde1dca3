// Reads parallel.split: auto, last-lighter, ends-lighter, {layers: [..]}, or the items of every stage.
#pragma once

#include "plan/spec/internal/problems.h"
#include "plan/spec/internal/yaml_tree.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// `model.num_hidden_layers` and `stages` are set and in range. What is wrong is added to `problems`; the
// split is then empty. `entry` may be nullptr: auto.
Split read_split(const YamlNode::Entry* entry, const ModelSpec& model, int stages, Problems& problems);

}  // namespace penstock::plan
