// Fields of a job file that say `auto`: parallel.schedule (with stages_per_rank), parallel.split, train.microbatch_size.
//
// The text is the spec on the wire and its reader plans nothing: it refuses the first and the last, and takes the split for equal counts.
// So whoever submits plans them and writes what was found into the text, in place:
//     schedule: auto        becomes        schedule: zb-h1
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

struct AutoFields {
  bool schedule = false;
  bool split = false;  // or not said at all
  bool microbatch_size = false;

  bool any() const { return schedule || split || microbatch_size; }
};

// InvalidArgument when the text is no YAML that parse_job_spec reads.
StatusOr<AutoFields> auto_fields(const std::string& yaml);

// The jobs that the text may become: one for each size of microbatch that is worth a look and that the job's bounds allow,
// smallest first, or the one that the text says. Sizes are the divisors of a pipeline's sequences of a step, of many 16 whose
// ratios are even. In place of `schedule: auto` stands 1f1b, or interleaved-1f1b where the text says several stages a rank;
// where it says schedule_options, which ask for a search, zb-auto or v-auto.
// InvalidArgument: what parse_job_spec finds wrong with the rest; with every size, what it finds with the largest.
StatusOr<std::vector<JobSpec>> jobs_to_plan(const std::string& yaml);

struct PlannedFields {
  std::optional<std::string> schedule{};
  std::optional<int> stages_per_rank{};
  std::optional<int64_t> microbatch_size{};
  std::optional<Split> split{};
  std::vector<int64_t> recompute{};  // blocks, of a text that says nothing about it; none: nothing is written
};

// The same text with these in place, without the options of a search that another schedule has won, `recompute` as its first
// key, and `notes` as comments at its end. FailedPrecondition when it says another job then (a list broken in an odd way): the
// message has what was to be written. InvalidArgument: what parse_job_spec refuses, and a text without a section to write into.
StatusOr<std::string> with_planned_fields(const std::string& yaml, const PlannedFields& fields,
                                          const std::vector<std::string>& notes = {});

// The same text with a number in place of train.microbatch_size. What else it says is not checked. FailedPrecondition: no section
// to write into.
StatusOr<std::string> with_microbatch_size(const std::string& yaml, int64_t size);

}  // namespace penstock::plan
