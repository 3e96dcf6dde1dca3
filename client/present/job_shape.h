// How the ranks of a job stand, and what each of them holds. Pure.
//
// `spec` is that of the job's file (v1::Job::spec_yaml).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "client/present/job_json.h"
#include "penstock/v1/jobs.pb.h"
#include "plan/render/table.h"
#include "plan/spec/job_spec.h"

namespace penstock::client {

// "8: pipeline 2 x expert 2 x data 2"; only the number where there is one pipeline.
std::string ranks_text(const plan::ParallelSpec& parallel);

// "0..3,6" of ascending numbers.
std::string ranges_text(std::span<const int> numbers);

// PIPELINE EXPERT DATA EXPERTS RANKS: a row for each of the pipelines side by side, at most 16.
plan::Table pipeline_table(const plan::JobSpec& spec);

// "2.44k dense and 768 of experts; a rank about 1.41k, (dense + experts / 2) / 2, exactly 1392 to 1432". The exact
// count needs the job's stages, and is left out before they are placed.
std::string parameters_text(const v1::Job& job, const plan::JobSpec& spec);
Json parameters_json(const v1::Job& job, const plan::JobSpec& spec);

// RANKS KIND PREDICTED MEASURED DIFFERENCE, with a sum of each rank; ranks with the same values stand together. A value that
// is not known is left out, and its difference.
plan::Table memory_table(const v1::Job& job);
// [{rank, kinds: [{kind, predicted_bytes, peak_bytes}]}]
Json memory_json(const v1::Job& job);

}  // namespace penstock::client
