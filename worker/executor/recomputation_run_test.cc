// Jobs that recompute, through executors, against the same jobs that keep everything: losses, norms and weights to the
// bit, and the memory that plan/cost predicts.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "plan/schedule/forward_only.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/schedule_source.h"
#include "worker/executor/testing/fake_daemon.h"
#include "worker/executor/testing/memory_account.h"
#include "worker/executor/testing/text_file.h"

namespace penstock::worker {
namespace {

const char* const kEverything =
    ", qk_norm: true, hidden_dropout: 0.1, moe: {num_experts: 4, num_experts_per_tok: 2, "
    "moe_intermediate_size: 24, layers: [1, 4], capacity_factor: 1.25}";

struct Variant {
  std::string schedule = "1f1b";
  int ranks = 2;
  int stages_per_rank = 1;
  std::string parallel{};  // keys added to the section
  std::string dtype = "float32";
  std::string model = kEverything;
  double clip = 1.0;

  friend void PrintTo(const Variant& v, std::ostream* out) {
    *out << fmt::format("{} P={} V={} {}{}", v.schedule, v.ranks, v.stages_per_rank, v.dtype, v.parallel);
  }
};

plan::JobSpec job_of(const Variant& variant, const std::string& recompute) {
  static const TextFile text("recomputation_run", 400);
  return plan::parse_job_spec(fmt::format(R"(name: again
model: {{vocab_size: 256, hidden_size: 32, num_hidden_layers: 6, num_attention_heads: 4, num_key_value_heads: 2,
         intermediate_size: 48, max_position_embeddings: 32{}}}
data: {{source: {}, tokenizer: bytes, sequence_length: 16}}
train: {{steps: 4, global_batch_size: 8, microbatch_size: 1, dtype: {},
         optimizer: {{lr: 1e-2, clip_grad_norm: {}}}}}
parallel: {{pipeline: {}, stages_per_rank: {}, schedule: {}{}}}
validation: {{source: {}, every: 4, microbatches: 2}}
device: {{threads: 1}}
recompute: {}
)",
                                          variant.model, text.path(), variant.dtype, variant.clip,
                                          variant.ranks, variant.stages_per_rank, variant.schedule,
                                          variant.parallel, text.path(), recompute))
      .value();
}

struct Programs {
  plan::LoweredProgram training;
  plan::LoweredProgram validation;
};

Programs programs_of(const plan::JobSpec& job) {
  const plan::ComputeProgram program = plan::compute_program(job).value();
  const bool post_validated = job.parallel.optimizer_step == "post-validated";
  return {plan::lower(program,
                      {.step_rule = post_validated ? plan::StepRule::PostValidated : plan::StepRule::Barrier})
              .value(),
          plan::lower(plan::forward_only(program, static_cast<int>(job.validation.microbatches))).value()};
}

// What a run leaves behind, and what its ranks held.
struct Result {
  std::map<std::pair<int64_t, size_t>, double> losses;  // of a step, by the rank that tells
  std::vector<double> validation;
  std::vector<double> gradient_norms;
  std::map<int, std::array<uint8_t, 16>> digests;  // by parameter
  bool operator==(const Result&) const = default;
};
struct Trained {
  Result result;
  std::vector<std::map<std::string, int64_t>> memory;  // of each rank, by kind
};

Trained train(const plan::JobSpec& job) {
  const Programs programs = programs_of(job);
  std::vector<ExecutorAssignment> assignments;
  for (size_t rank = 0; rank < programs.training.ranks.size(); ++rank) {
    Assignment assignment{.attempt = {"again", 1, 7},
                          .rank = programs.training.ranks[rank].rank,
                          .device = 0,
                          .spec_yaml = job.yaml,
                          .split = job.parallel.split,
                          .program = programs.training.ranks[rank],
                          .first_step = 0,
                          .rank_hosts = std::vector<std::string>(programs.training.ranks.size(), "here")};
    assignment.validation = programs.validation.ranks[rank];
    assignments.push_back({std::move(assignment), "127.0.0.1", "worker"});
  }
  Trained run;
  const std::vector<ExecutorOutcome> outcomes = FakeDaemon(assignments).serve();
  expect_predicted_memory(assignments, outcomes);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const ExecutorOutcome& outcome = outcomes[rank];
    EXPECT_TRUE(outcome.finished.has_value()) << (outcome.failed ? outcome.failed->reason : "");
    if (!outcome.finished) continue;
    for (const ParameterDigest& digest : outcome.finished->digests)
      run.result.digests[digest.parameter] = digest.digest;
    for (const StepReport& report : outcome.steps) {
      if (report.loss) run.result.losses[{report.step, rank}] = *report.loss;
      if (report.validation_loss) run.result.validation.push_back(*report.validation_loss);
      run.result.gradient_norms.push_back(report.gradient_norm);
    }
    std::map<std::string, int64_t>& held = run.memory.emplace_back();
    for (const MemoryKind& kind : outcome.steps.back().memory) held[kind.kind] = kind.bytes_peak;
  }
  return run;
}

class RecomputationRun : public ::testing::TestWithParam<Variant> {};

TEST_P(RecomputationRun, losses_and_weights_are_those_of_none_to_the_bit_and_memory_falls_as_predicted) {
  const plan::JobSpec none = job_of(GetParam(), "none");
  const Trained expected = train(none);
  ASSERT_EQ(expected.result.validation.size(), 1u);
  for (const char* recompute : {"full", "[1, 2]"}) {
    const plan::JobSpec job = job_of(GetParam(), recompute);
    ASSERT_FALSE(job.recompute.empty());
    const Trained found = train(job);
    EXPECT_EQ(found.result, expected.result) << recompute;
    int64_t saved = 0;
    for (size_t rank = 0; rank < found.memory.size(); ++rank) {
      saved += expected.memory[rank].at("activations") - found.memory[rank].at("activations");
    }
    EXPECT_GT(saved, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, RecomputationRun,
    ::testing::Values(
        Variant{.schedule = "1f1b", .ranks = 3}, Variant{.schedule = "gpipe", .dtype = "bfloat16"},
        Variant{.schedule = "interleaved-1f1b", .stages_per_rank = 2},
        Variant{.schedule = "zb-h1", .ranks = 3},
        Variant{.schedule = "zb-h2", .ranks = 3, .dtype = "bfloat16"},
        Variant{.schedule = "zb-v", .stages_per_rank = 2}, Variant{.schedule = "dualpipe"},
        Variant{.schedule = "chimera"},
        // Recomputed with the version of the microbatch's forward: another one would be other activations.
        Variant{.schedule = "pipedream", .ranks = 3, .parallel = ", flush_every: 4", .clip = 0},
        Variant{.schedule = "pipedream-2bw", .ranks = 3, .parallel = ", flush_every: 2", .clip = 0},
        // Every step is clipped, hence taken anew, behind a warm-up that recomputed nothing yet.
        Variant{.schedule = "zb-h2", .parallel = ", optimizer_step: post-validated", .clip = 1e-3},
        Variant{.schedule = "1f1b", .ranks = 3, .model = ""}));

}  // namespace
}  // namespace penstock::worker
