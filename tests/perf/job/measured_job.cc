#include "tests/perf/job/measured_job.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/spec/job_spec.h"

namespace penstock::perf {

TokenFile::TokenFile(int64_t tokens, int64_t vocabulary)
    : path_(std::filesystem::temp_directory_path() / fmt::format("penstock_perf_{}.bin", ::getpid())) {
  std::mt19937 random(1);
  std::vector<uint16_t> values(static_cast<size_t>(tokens));
  for (uint16_t& each : values) each = static_cast<uint16_t>(random() % static_cast<uint64_t>(vocabulary));
  std::ofstream(path_, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(2 * values.size()));
}

TokenFile::~TokenFile() {
  std::filesystem::remove(path_);
}

std::string MeasuredJob::yaml() const {
  return fmt::format(R"(name: perf
model: {{vocab_size: {}, hidden_size: {}, num_hidden_layers: {}, num_attention_heads: {}, intermediate_size: {},
         max_position_embeddings: {}}}
data: {{source: {}, token_type: uint16, sequence_length: {}, epochs: 0}}
train: {{steps: {}, global_batch_size: {}, microbatch_size: {}, dtype: {}, optimizer: {{name: adamw, lr: 1e-4}}}}
parallel: {{pipeline: {}, stages_per_rank: {}, schedule: {}, p2p: {{mode: {}}}}}
device: {{kind: cpu, threads: 1}}
{})",
                     vocabulary, hidden, layers, heads, intermediate, sequence_length, tokens.string(),
                     sequence_length, steps, microbatches * microbatch_size, microbatch_size, dtype, ranks,
                     stages_per_rank, schedule, p2p, extra);
}

plan::ComputeProgram MeasuredJob::program() const {
  return plan::generate({.name = schedule,
                         .ranks = ranks,
                         .microbatches = static_cast<int>(microbatches),
                         .stages_per_rank = stages_per_rank})
      .value();
}

std::vector<ExecutorAssignment> MeasuredJob::assignments() const {
  const std::string text = yaml();
  const plan::JobSpec job = plan::parse_job_spec(text).value();
  const plan::LoweredProgram lowered = plan::lower(program()).value();
  std::vector<ExecutorAssignment> assignments;
  for (const plan::RankProgram& of_rank : lowered.ranks) {
    Assignment assignment{.attempt = {"perf", 1, 1},
                          .rank = of_rank.rank,
                          .device = 0,
                          .spec_yaml = text,
                          .split = job.parallel.split,
                          .program = of_rank,
                          .first_step = 0,
                          .rank_hosts = std::vector<std::string>(static_cast<size_t>(ranks), "here")};
    assignments.push_back({std::move(assignment), "127.0.0.1", "perf"});
  }
  return assignments;
}

}  // namespace penstock::perf
