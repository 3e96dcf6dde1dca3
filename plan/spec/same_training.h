// Whether a job that goes on with another file is still the same training.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// The split, the schedule, the number of ranks and everything else may differ: no bit depends on it, but for what
// other_sums() tells. Of schedules without a flush weight versions stay, and so the schedule, the ranks of a pipeline,
// flush_every, the microbatches of a pipeline and, where stages differ in their versions, the split. InvalidArgument names
// the first difference under model, data or train, in the kind of device, the folder of checkpoints or what the job
// began from, in what drops tokens, or in what weight versions follow from, with its line in `after` where it is
// written there. Values of the sections are compared as they are written: 1e-3 is not 0.001.
Status check_same_training(const JobSpec& before, const JobSpec& after);

// What of the file changes, or may change, the order in which gradients and losses are summed, so that what follows is
// the same training with other last digits: "parallel.expert 2 in place of 1, two_batch_overlap"; "" for nothing.
std::string other_sums(const JobSpec& before, const JobSpec& after);

// What a job says otherwise than the one whose checkpoint it goes on with, for people: "train.optimizer.lr: 1e-3 there,
// 5e-4 here". Of model, data and train, other_sums(), dropped tokens and weight versions; where nothing differs, the
// losses are those of one job that was not interrupted.
std::vector<std::string> training_differences(const JobSpec& before, const JobSpec& after);

// Whether every bit stays under any split: not where stages differ in their weight versions (pipedream).
bool keeps_bits_under_any_split(const JobSpec& job);

// Whether a layer takes as long by one file as by the other: beside the split only the name, and what a step's work does not
// depend on, may differ (validation, trace, checkpoint, restart, memory_budget, rebalance). Values are compared as they are written.
bool differ_by_split_alone(const JobSpec& before, const JobSpec& after);

}  // namespace penstock::plan
