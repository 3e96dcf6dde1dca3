// pipedream and pipedream-2bw through executors, against one process that keeps every version of every weight and
// computes each microbatch, stage by stage, with those that the rule states: bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "plan/schedule/families.h"
#include "plan/schedule/forward_only.h"
#include "plan/schedule/weight_versions.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/schedule_source.h"
#include "worker/executor/check_assignment.h"
#include "worker/executor/testing/fake_daemon.h"
#include "worker/executor/testing/text_file.h"
#include "worker/model/testing/sequential_run.h"
#include "worker/optimizer/adamw.h"

namespace penstock::worker {
namespace {

struct Variant {
  std::string schedule = "pipedream";
  int ranks = 3;
  int microbatches = 2;  // of an update: 4 sequences
  int flush_every = 6;   // of 12 steps
  std::string dtype = "float32";
  std::string model{};  // keys added to it
  std::string split = "auto";
  std::string extra{};  // lines added to the job file
  int threads = 1;
  std::string p2p = "two-sided";

  friend void PrintTo(const Variant& v, std::ostream* out) {
    *out << fmt::format("{} P={} m={} flush_every={} {} {} {} {}", v.schedule, v.ranks, v.microbatches,
                        v.flush_every, v.dtype, v.p2p, v.model, v.split);
  }
};

std::string job_file(const Variant& variant) {
  static const TextFile text("stale_training", 600);
  const bool flushes = variant.schedule == "naive" || variant.schedule == "1f1b";
  return fmt::format(R"(name: stale
model: {{vocab_size: 256, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4, num_key_value_heads: 2,
         intermediate_size: 48, max_position_embeddings: 32{}}}
data: {{source: {}, tokenizer: bytes, sequence_length: 16}}
train: {{steps: 12, global_batch_size: 4, microbatch_size: {}, dtype: {},
         optimizer: {{lr: 1e-2, clip_grad_norm: 0}}, lr_schedule: {{name: cosine, warmup_steps: 2}}}}
parallel: {{pipeline: {}, schedule: {}, split: {}, p2p: {{mode: {}}}{}}}
device: {{threads: {}}}
{})",
                     variant.model, text.path(), 4 / variant.microbatches, variant.dtype, variant.ranks,
                     variant.schedule, variant.split, variant.p2p,
                     flushes ? "" : fmt::format(", flush_every: {}", variant.flush_every), variant.threads,
                     variant.extra);
}

plan::JobSpec job_of(const Variant& variant) {
  return plan::parse_job_spec(job_file(variant)).value();
}

struct Result {
  std::vector<double> losses;
  std::map<int, std::array<uint8_t, 16>> digests;  // by parameter
  bool operator==(const Result&) const = default;
};

// --- one process

std::vector<std::vector<float>> weights_of(const ParameterStore& store) {
  std::vector<std::vector<float>> copy;
  for (const Parameter& parameter : store.parameters())
    copy.emplace_back(parameter.weight.f32(), parameter.weight.f32() + parameter.weight.elements());
  return copy;
}

// Version that stage `stage` computes microbatch k of a run of the program with. PipeDream: the newest when forward k
// runs. In 1F1B a stage is P-1-s forwards ahead of its backwards, so that k - (P-1-s) backwards have ended, and every m
// of them have made an update; with m = 1 the paper's max(0, k - (P-1-s)). 2BW: of the update before.
int version_of(const plan::JobSpec& job, int stage, int k) {
  const int m = static_cast<int>(job.microbatches());
  if (job.parallel.schedule == "pipedream-2bw") return std::max(k / m - 1, 0);
  return std::max(k - (job.parallel.pipeline - 1 - stage), 0) / m;
}

class StaleRun {
 public:
  explicit StaleRun(const plan::JobSpec& job) : job_(job), run_(job, job.parallel.split) {
    for (size_t s = 0; s < run_.stages(); ++s)
      optimizers_.push_back(AdamW::create(job_.train, run_.parameters(s), run_.operators()).value());
  }

  Result train() {
    Result result;
    for (int step = 0; step < job_.train.steps; ++step) {
      const int update = step % job_.parallel.flush_every;
      if (update == 0) drain();
      run_update(step, update);
      result.losses.push_back(run_.loss());
    }
    for (size_t s = 0; s < run_.stages(); ++s) {
      for (const WeightDigest& digest : run_.parameters(s).digests())
        result.digests[digest.parameter] = digest.digest;
    }
    return result;
  }

 private:
  void drain() {
    made_.clear();
    for (size_t s = 0; s < run_.stages(); ++s) made_.push_back({weights_of(run_.parameters(s))});
  }

  void run_update(int step, int update) {
    const auto microbatches = static_cast<int>(job_.microbatches());
    run_.begin_step(step);
    for (int i = 0; i < microbatches; ++i) {
      const int k = update * microbatches + i;
      for (size_t s = 0; s < run_.stages(); ++s) {
        load(s, version_of(job_, static_cast<int>(s), k));
        run_.forward_stage(s, i);
      }
      for (size_t s = run_.stages(); s-- > 0;) {
        load(s, version_of(job_, static_cast<int>(s), k));
        run_.backward_stage(s, i);
      }
    }
    for (size_t s = 0; s < run_.stages(); ++s) {
      load(s, update);  // the newest: gradients of older weights change those
      ASSERT_TRUE(optimizers_[s].apply(StepIndex(step), 1).ok());
      made_[s].push_back(weights_of(run_.parameters(s)));
    }
  }

  void load(size_t stage, int version) {
    const auto& parameters = run_.parameters(stage).parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::vector<float>& values = made_[stage].at(static_cast<size_t>(version))[i];
      std::copy(values.begin(), values.end(), parameters[i].weight.f32());
    }
    run_.parameters(stage).pack(run_.operators());
  }

  plan::JobSpec job_;
  SequentialRun run_;
  std::vector<AdamW> optimizers_;
  std::vector<std::vector<std::vector<std::vector<float>>>> made_;  // [stage][version][parameter]
};

// --- executors

std::vector<ExecutorAssignment> assignments_of(const Variant& variant) {
  const plan::JobSpec job = job_of(variant);
  const plan::ComputeProgram program = plan::compute_program(job).value();
  const plan::LoweredProgram lowered = plan::lower(program).value();
  std::optional<plan::LoweredProgram> validation;
  if (job.validation.every > 0)
    validation =
        plan::lower(plan::forward_only(program, static_cast<int>(job.validation.microbatches))).value();
  std::vector<ExecutorAssignment> assignments;
  for (const plan::RankProgram& of_rank : lowered.ranks) {
    Assignment assignment{.attempt = {"stale", 1, 7},
                          .rank = of_rank.rank,
                          .device = 0,
                          .spec_yaml = job.yaml,
                          .split = job.parallel.split,
                          .program = of_rank,
                          .first_step = 0,
                          .rank_hosts = std::vector<std::string>(variant.ranks, "here")};
    if (validation) assignment.validation = validation->ranks[static_cast<size_t>(of_rank.rank.value)];
    assignments.push_back({std::move(assignment), "127.0.0.1", "worker"});
  }
  return assignments;
}

Result result_of(const std::vector<ExecutorOutcome>& outcomes) {
  Result result;
  for (const ExecutorOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 0) << (outcome.failed ? outcome.failed->reason : "");
    if (!outcome.finished) continue;
    for (const ParameterDigest& digest : outcome.finished->digests)
      result.digests[digest.parameter] = digest.digest;
    for (const StepReport& report : outcome.steps) {
      if (report.loss) result.losses.push_back(*report.loss);
    }
  }
  return result;
}

Result train(const Variant& variant) {
  return result_of(FakeDaemon(assignments_of(variant)).serve());
}

class StaleTraining : public ::testing::TestWithParam<Variant> {};

TEST_P(StaleTraining, same_bits_as_one_process_with_the_stated_versions) {
  const Result expected = StaleRun(job_of(GetParam())).train();
  ASSERT_EQ(expected.losses.size(), 12u);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  EXPECT_EQ(train(GetParam()), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, StaleTraining,
    ::testing::Values(
        Variant{.ranks = 2, .microbatches = 1}, Variant{.ranks = 3, .microbatches = 1, .flush_every = 12},
        Variant{.ranks = 4, .microbatches = 1}, Variant{.ranks = 4, .microbatches = 2, .flush_every = 4},
        Variant{.ranks = 3, .microbatches = 4}, Variant{.ranks = 4, .microbatches = 1, .p2p = "one-sided"},
        Variant{.ranks = 2, .microbatches = 1, .dtype = "bfloat16"},
        Variant{.ranks = 4, .microbatches = 2, .dtype = "bfloat16"},
        Variant{.schedule = "pipedream-2bw", .ranks = 2, .microbatches = 1},
        Variant{.schedule = "pipedream-2bw", .ranks = 3, .microbatches = 2, .flush_every = 12},
        Variant{.schedule = "pipedream-2bw", .ranks = 4, .microbatches = 4},
        Variant{.schedule = "pipedream-2bw", .ranks = 4, .microbatches = 2, .flush_every = 3},
        Variant{.schedule = "pipedream-2bw", .ranks = 3, .microbatches = 4, .dtype = "bfloat16"},
        Variant{.ranks = 3,
                .microbatches = 2,
                .model = ", qk_norm: true, hidden_dropout: 0.1",
                .split = "[[embedding], [0, 1, 2], [3, head]]",
                .threads = 2},
        Variant{.schedule = "pipedream-2bw",
                .ranks = 3,
                .microbatches = 2,
                .dtype = "bfloat16",
                .model = ", qk_norm: true, hidden_dropout: 0.1",
                .split = "[[embedding, 0, 1], [2, 3], [head]]"}));

TEST(StaleTrainingRules, each_differs_from_synchronous_training_and_from_the_other) {
  const Result synchronous = train({.schedule = "naive"});
  const Result stashed = train({});
  const Result buffered = train({.schedule = "pipedream-2bw"});
  EXPECT_NE(stashed.digests, synchronous.digests);
  EXPECT_NE(buffered.digests, synchronous.digests);
  EXPECT_NE(stashed.digests, buffered.digests);
  EXPECT_NE(train({.flush_every = 4}).digests, stashed.digests) << "a drain brings every stage up to date";
}

TEST(StaleTrainingRules, a_drain_after_every_update_is_synchronous_training) {
  const Result synchronous = train({.schedule = "naive"});
  EXPECT_EQ(train({.flush_every = 1}), synchronous);
  EXPECT_EQ(train({.schedule = "pipedream-2bw", .flush_every = 1}), synchronous);
  EXPECT_EQ(train({.ranks = 1}), synchronous) << "one stage is never behind itself";
}

TEST(StaleTrainingRules, validation_reads_drained_weights_and_moves_no_bit) {
  // 1f1b's passes after steps 5 and 11 see the same weights when the pipeline drains in every update.
  const std::string validation =
      fmt::format("validation: {{source: {}, every: 6, microbatches: 2}}\n", job_of({}).data.sources.front());
  const auto passes = [&](const Variant& variant) {
    std::vector<std::pair<int64_t, double>> found;
    for (const ExecutorOutcome& outcome : FakeDaemon(assignments_of(variant)).serve()) {
      for (const StepReport& report : outcome.steps) {
        if (report.validation_loss) found.emplace_back(report.step, *report.validation_loss);
      }
    }
    return found;
  };
  EXPECT_EQ(train({.extra = validation}), train({}));
  const auto drained = passes({.flush_every = 1, .extra = validation});
  ASSERT_EQ(drained.size(), 2u);
  EXPECT_EQ(drained, passes({.schedule = "1f1b", .extra = validation}));
  EXPECT_NE(drained, passes({.flush_every = 6, .extra = validation}));
}

TEST(StaleTrainingRules, a_rank_reports_every_update_its_versions_and_its_own_norm) {
  // No rank waits for another in an update, so that none knows the norm of all.
  const std::vector<ExecutorAssignment> assignments = assignments_of({.ranks = 3, .microbatches = 1});
  const std::vector<ExecutorOutcome> outcomes = FakeDaemon(assignments).serve();
  double first_update = 0;  // squares of the ranks' norms
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    ASSERT_EQ(outcomes[rank].steps.size(), 12u);
    first_update += std::pow(outcomes[rank].steps[0].gradient_norm, 2);
    for (int64_t step = 0; step < 12; ++step) {
      const StepReport& report = outcomes[rank].steps[static_cast<size_t>(step)];
      EXPECT_EQ(report.step, step);
      EXPECT_EQ(report.loss.has_value(), rank == 2);
      EXPECT_GT(report.gradient_norm, 0);
      const auto versions =
          std::find_if(report.memory.begin(), report.memory.end(),
                       [](const MemoryKind& kind) { return kind.kind == "weight_versions"; });
      EXPECT_EQ(versions != report.memory.end(), rank < 2) << "the last stage keeps one";
    }
  }
  // The first update of a run sees one version everywhere: its norm is that of synchronous training.
  const auto synchronous = FakeDaemon(assignments_of({.schedule = "1f1b", .microbatches = 1})).serve();
  EXPECT_NEAR(std::sqrt(first_update), synchronous[0].steps[0].gradient_norm, 1e-12);
}

TEST(StaleTrainingRules, a_program_of_other_updates_than_the_job_s_is_refused) {
  Assignment assignment = assignments_of({}).front().assignment;
  assignment.program =
      plan::lower(plan::generate({.name = "pipedream", .ranks = 3, .microbatches = 2, .updates = 4}).value())
          ->ranks[0];
  EXPECT_NE(message(check_assignment(assignment).status())
                .find("updates of the program: expected 6 as in the job file, found 4"),
            std::string::npos)
      << check_assignment(assignment).status();
}

}  // namespace
}  // namespace penstock::worker
