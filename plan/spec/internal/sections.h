// Readers of the job file's sections, one file each. They run in the order below: a check that needs a value
// of an earlier section stays silent where that is 0, because it could not be read: one mistake is reported once.
#pragma once

#include "plan/spec/internal/problems.h"
#include "plan/spec/internal/section.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// Some of the model's blocks, "layers: [1, 3, 5]", ascending. `else_expected`: what the key may be instead, for the
// message.
void read_layers(Section& section, const std::string& key, const std::string& else_expected,
                 const ModelSpec& model, std::vector<int64_t>& layers, Problems& problems);
void read_model(Section section, ModelSpec& model, Problems& problems);
// Uses the model's vocabulary and its longest sequence.
void read_data(Section section, const ModelSpec& model, DataSpec& data, Problems& problems);
void read_train(Section section, TrainSpec& train, Problems& problems);
// Uses the job's data and its microbatches.
void read_validation(Section section, const JobSpec& job, ValidationSpec& validation, Problems& problems);
// Uses the model's layers.
void read_parallel(Section section, const ModelSpec& model, ParallelSpec& parallel, Problems& problems);
// Uses the job's schedule, stages and boundary tensors; fills in its device and notes.
void read_device(Section section, JobSpec& job, Problems& problems);

}  // namespace penstock::plan
