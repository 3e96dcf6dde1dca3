// Jobs and measured runs for the tests of this room.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/forecast/measured_costs.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan::testing {

struct JobText {
  std::string pipeline = "4";
  std::string parallel = "";  // more keys: ", schedule: auto"
  std::string global_batch_size = "16";
  std::string microbatch_size = "1";
  std::string train = "";  // more keys
  std::string model = "";
  int blocks = 8;
  int vocabulary = 256;
  std::string more = "";  // sections
};

inline std::string job_text(const JobText& text) {
  return "name: tiny\nmodel: {vocab_size: " + std::to_string(text.vocabulary) +
         ", hidden_size: 32, num_hidden_layers: " + std::to_string(text.blocks) +
         ", num_attention_heads: 2,\n        intermediate_size: 64, max_position_embeddings: 16" +
         text.model +
         "}\ndata: {source: /data/text.txt, sequence_length: 16}\n"
         "train: {steps: 100, global_batch_size: " +
         text.global_batch_size + ", microbatch_size: " + text.microbatch_size + ", dtype: float32" +
         text.train + "}\nparallel: {pipeline: " + text.pipeline + text.parallel + "}\n" + text.more;
}

inline JobSpec job_of(const JobText& text) {
  const StatusOr<JobSpec> job = parse_job_spec(job_text(text));
  EXPECT_TRUE(job.ok()) << job.status() << job_text(text);
  return job.value_or(JobSpec{});
}

// Milliseconds of a layer: fixed, and for each token.
struct Truth {
  double fixed = 0;
  double per_token = 0.1;
  double at(const JobSpec& job) const {
    return fixed + per_token * static_cast<double>(job.tokens_per_microbatch());
  }
};

// What layers take forward; a backward takes twice as long, and one that recomputes three times.
struct Truths {
  Truth embedding = {0.1, 0.01};
  Truth block = {0.5, 0.1};
  Truth head = {1, 0.4};
  Truth experts = {2, 0.2};
};

inline double forward_ms(const JobSpec& job, const Truths& truths, const Item& item) {
  if (item.kind == ItemKind::Embedding) return truths.embedding.at(job);
  if (item.kind == ItemKind::Head) return truths.head.at(job);
  return (job.model.has_experts(item.layer) ? truths.experts : truths.block).at(job);
}

// A run of the job's split without noise, of ten steps.
inline MeasuredRun run_of(const JobSpec& job, const Truths& truths, double step_seconds = 1) {
  MeasuredRun run;
  run.schedule = job.parallel.schedule;
  run.split = job.parallel.split;
  for (size_t stage = 0; stage < run.split.size(); ++stage) {
    double forward = 0, backward = 0;
    for (const Item& item : run.split[stage]) {
      const double ms = forward_ms(job, truths, item);
      forward += ms;
      backward += (item.kind == ItemKind::Block && job.recomputes(item.layer) ? 3 : 2) * ms;
    }
    StageSamples& samples = run.stages.emplace_back().emplace_back();
    samples.rank = static_cast<int>(stage);
    samples.forward_seconds.assign(10, forward / 1e3);
    samples.backward_seconds.assign(10, backward / 1e3);
  }
  run.step_seconds.assign(10, step_seconds);
  return run;
}

inline MeasuredJobRuns measured(const std::string& name, const JobSpec& job, const Truths& truths = {}) {
  return {name, job, {run_of(job, truths)}};
}

}  // namespace penstock::plan::testing
