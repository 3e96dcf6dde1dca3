// What tests of pipelines side by side share: a tiny job of P x M_E x D_E ranks, its executors' results, and the same
// training in one process, which runs every pipeline's microbatches in order and adds gradients up in the order of
// pipelines, in plain loops.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/checkpoint/directory.h"
#include "base/safetensors/testing/written.h"
#include "plan/schedule/forward_only.h"
#include "plan/spec/parameters.h"
#include "plan/spec/rank_place.h"
#include "plan/spec/schedule_source.h"
#include "worker/executor/testing/fake_daemon.h"
#include "worker/executor/testing/memory_account.h"
#include "worker/model/testing/sequential_run.h"
#include "worker/optimizer/adamw.h"

namespace penstock::worker {

inline constexpr int kSteps = 4;

struct Shape {
  int pipeline = 1;
  int expert = 1;
  int data = 1;
  std::string schedule = "1f1b";
  int stages_per_rank = 1;
  std::string split = "auto";
  std::string parallel{};  // keys added
  std::string model{};
  std::string extra{};  // lines added
  int microbatch_size = 2;
  std::string dtype = "float32";
  double clip = 1.0;
  int steps = kSteps;
  int layers = 6;

  bool is_asynchronous() const { return schedule.starts_with("pipedream"); }
  friend void PrintTo(const Shape& shape, std::ostream* out) {
    *out << shape.pipeline << " x " << shape.expert << " x " << shape.data << " " << shape.schedule
         << " V=" << shape.stages_per_rank << " " << shape.split << shape.parallel << shape.model << " "
         << shape.dtype << " of " << shape.microbatch_size << ", " << shape.layers << " layers";
  }
};

inline constexpr const char* kEverything = ", tie_word_embeddings: true, qk_norm: true, hidden_dropout: 0.1";
inline constexpr const char* kExperts =
    ", moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16, layers: [1, 2, 5]}";
// Shared ones too: a network of 64, wider than the MLP.
inline constexpr const char* kSharedExperts =
    ", moe: {num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 16, num_shared_experts: 4, layers: [1, 2, 5]}";

inline const penstock::testing::TemporaryFolder& folder() {
  static penstock::testing::TemporaryFolder folder("penstock_pipelines");
  static const bool written = [] {
    std::string text;
    for (int i = 0; i < 900; ++i) text += fmt::format("line {} of the water book; ", i % 17);
    folder.write("text.txt", text);
    folder.write("checkpoints/.attempt-1", "");
    return true;
  }();
  (void)written;
  return folder;
}

inline std::string job_file(const Shape& shape) {
  return fmt::format(R"(name: tiny
model: {{vocab_size: 256, hidden_size: 32, num_hidden_layers: {}, num_attention_heads: 4, num_key_value_heads: 2,
         intermediate_size: 48, max_position_embeddings: 32{}}}
data: {{source: {}, sequence_length: 16}}
train: {{steps: {}, global_batch_size: 16, microbatch_size: {}, dtype: {},
         optimizer: {{name: adamw, lr: 1e-2, clip_grad_norm: {}}}, lr_schedule: {{name: cosine, warmup_steps: 1}}}}
parallel: {{pipeline: {}, expert: {}, data: {}, stages_per_rank: {}, schedule: {}, split: {}{}}}
device: {{kind: cpu, threads: 1}}
{})",
                     shape.layers, shape.model, folder().path("text.txt"), shape.steps, shape.microbatch_size,
                     shape.dtype, shape.clip, shape.pipeline, shape.expert, shape.data, shape.stages_per_rank,
                     shape.schedule, shape.split, shape.parallel, shape.extra);
}

inline plan::JobSpec job_of(const Shape& shape) {
  const auto job = plan::parse_job_spec(job_file(shape));
  PENSTOCK_CHECK(job.ok(), "{}", message(job.status()));
  return *job;
}

struct Places {
  bool writes = false;
  std::string load_from{};
  int64_t first_step = 0;
};

inline std::vector<ExecutorAssignment> assignments_of(const Shape& shape, const Places& places = {}) {
  const plan::JobSpec job = job_of(shape);
  const bool post_validated = job.parallel.optimizer_step == "post-validated";
  const plan::ComputeProgram program = plan::compute_program(job).value();
  const plan::LoweredProgram lowered =
      plan::lower(program,
                  {.step_rule = post_validated ? plan::StepRule::PostValidated : plan::StepRule::Barrier})
          .value();
  std::optional<plan::LoweredProgram> validation;
  if (job.validation.every > 0) {
    validation =
        plan::lower(plan::forward_only(program, static_cast<int>(job.validation_microbatches()))).value();
  }
  std::vector<ExecutorAssignment> assignments;
  for (int rank = 0; rank < job.ranks(); ++rank) {
    const plan::RankPlace place = plan::place_of_rank(job.parallel, RankIndex(rank));
    Assignment assignment;
    assignment.attempt = {"tiny", 1, 7};
    assignment.rank = RankIndex(rank);
    assignment.spec_yaml = job_file(shape);
    assignment.split = job.parallel.split;
    assignment.program = lowered.ranks[static_cast<size_t>(place.pipeline_rank.value)];
    if (validation) assignment.validation = validation->ranks[static_cast<size_t>(place.pipeline_rank.value)];
    assignment.first_step = places.first_step;
    assignment.rank_hosts.assign(static_cast<size_t>(job.ranks()), "here");
    if (places.writes) assignment.checkpoints = {folder().path("checkpoints"), ".attempt-1"};
    assignment.load_from = places.load_from;
    assignments.push_back({std::move(assignment), "127.0.0.1", "worker"});
  }
  return assignments;
}

// What a run leaves behind.
struct Result {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<int64_t, double> validation;            // by step
  std::map<int, std::array<uint8_t, 16>> digests;  // by parameter
  bool operator==(const Result&) const = default;
};

// Ranks that hold a parameter, or tell a norm, must say the same; losses are parts, which add up in the order of ranks.
// Where no rank waits for another in its pipeline, the norm is that of its stages: here of the last ones.
inline Result result_of(const Shape& shape, const std::vector<ExecutorOutcome>& outcomes) {
  Result result;
  std::map<size_t, std::vector<double>> norms;  // by the rank in the pipeline
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const ExecutorOutcome& outcome = outcomes[rank];
    EXPECT_EQ(outcome.exit_code, 0) << (outcome.failed ? outcome.failed->reason : "");
    if (!outcome.finished) continue;
    for (const ParameterDigest& digest : outcome.finished->digests) {
      const auto [known, is_new] = result.digests.emplace(digest.parameter, digest.digest);
      EXPECT_TRUE(is_new || known->second == digest.digest)
          << "ranks differ in parameter " << digest.parameter;
    }
    result.losses.resize(outcome.steps.size());
    result.norms.clear();
    for (size_t step = 0; step < outcome.steps.size(); ++step) {
      const StepReport& report = outcome.steps[step];
      result.norms.push_back(report.gradient_norm);
      if (report.loss) result.losses[step] += *report.loss;
      if (report.validation_loss) result.validation[report.step] += *report.validation_loss;
    }
    const size_t row = shape.is_asynchronous() ? rank / static_cast<size_t>(shape.expert * shape.data) : 0;
    EXPECT_EQ(norms.emplace(row, result.norms).first->second, result.norms) << "ranks clip differently";
  }
  return result;
}

// In every step and block with experts each token of every microbatch has its rows, wherever its experts are, and no rank tells
// of another one's.
inline void expect_every_row_once(const Shape& shape, const std::vector<ExecutorOutcome>& outcomes) {
  const plan::JobSpec job = job_of(shape);
  std::map<std::pair<int64_t, int>, int64_t> rows;  // by step and block
  for (const ExecutorOutcome& outcome : outcomes) {
    for (const StepReport& report : outcome.steps) {
      for (const ExpertRows& experts : report.expert_rows) {
        int64_t& sum = rows[{report.step, static_cast<int>(experts.layer.value)}];
        sum += experts.dropped;
        for (const int64_t of_expert : experts.rows) sum += of_expert;
      }
    }
  }
  EXPECT_EQ(rows.size(), outcomes.front().steps.size() * job.model.moe.layers.size());
  const int64_t tokens = job.microbatches() * job.parallel.pipelines() * job.tokens_per_microbatch();
  for (const auto& [of, sum] : rows)
    EXPECT_EQ(sum, tokens * job.model.moe.num_experts_per_tok)
        << "step " << of.first << " block " << of.second;
}

inline Result train(const Shape& shape, const Places& places = {}) {
  const std::vector<ExecutorAssignment> assignments = assignments_of(shape, places);
  const std::vector<ExecutorOutcome> outcomes = FakeDaemon(assignments).serve();
  expect_predicted_memory(assignments, outcomes);
  expect_every_row_once(shape, outcomes);
  return result_of(shape, outcomes);
}

// As many pipelines of one rank, each of which has all experts.
inline Shape with_whole_experts(const Shape& shape) {
  Shape whole;
  whole.data = shape.expert * shape.data;
  whole.model = shape.model;
  whole.microbatch_size = shape.microbatch_size;
  whole.dtype = shape.dtype;
  whole.clip = shape.clip;
  whole.steps = shape.steps;
  whole.layers = shape.layers;
  return whole;
}

// One process: the whole model once for every pipeline, with the same weights.
class Reference {
 public:
  explicit Reference(const Shape& shape) : job_(job_of(with_whole_experts(shape))) {
    const plan::Split whole = cut(job_.model);
    for (int pipeline = 0; pipeline < job_.parallel.pipelines(); ++pipeline) {
      const plan::RankPlace place = plan::place_of_rank(job_.parallel, RankIndex(pipeline));
      runs_.push_back(std::make_unique<SequentialRun>(job_, whole, 1, plan::BackwardForm::Fused,
                                                      PayloadOptions{}, place));
    }
  }

  Result run() {
    SequentialRun& first = *runs_.front();
    AdamW optimizer = AdamW::create(job_.train, first.parameters(0), first.operators()).value();
    Result result;
    for (int step = 0; step < job_.train.steps; ++step) {
      double loss = 0;
      for (const auto& run : runs_) {
        run->begin_step(step);
        for (int64_t microbatch = 0; microbatch < job_.microbatches(); ++microbatch) {
          run->forward(microbatch);
          run->backward(microbatch);
        }
        loss += run->loss();
      }
      result.losses.push_back(loss);
      add_gradients();
      first.sum_tied_gradients();
      GradientNorm norm(static_cast<int64_t>(first.parameters().size()));
      result.norms.push_back(norm.of(optimizer.local_squared_norms()).value());
      const Status applied = optimizer.apply(StepIndex(step), result.norms.back());
      PENSTOCK_CHECK(applied.ok(), "{}", message(applied));
      hand_on_weights();
    }
    for (const WeightDigest& digest : first.parameters(0).digests())
      result.digests[digest.parameter] = digest.digest;
    for (const AdamW::Moments& moments : optimizer.moments())
      first_moments_.emplace_back(moments.first.f32(), moments.first.f32() + moments.first.elements());
    return result;
  }

  // Of every parameter, in model order, after run(): of one step the gradients, but for a factor.
  const std::vector<std::vector<float>>& first_moments() const { return first_moments_; }

 private:
  std::vector<std::span<float>> accumulators(SequentialRun& run) {
    std::vector<std::span<float>> all;
    const auto add = [&](const Parameter& parameter) {
      all.emplace_back(parameter.gradient.f32(), static_cast<size_t>(parameter.gradient.elements()));
    };
    for (const Parameter& parameter : run.parameters(0).parameters()) add(parameter);
    if (const Parameter* head = run.parameters(0).tied_head()) add(*head);
    return all;
  }
  void add_gradients() {
    const auto sums = accumulators(*runs_.front());
    for (size_t n = 1; n < runs_.size(); ++n) {
      const auto addends = accumulators(*runs_[n]);
      for (size_t p = 0; p < sums.size(); ++p) {
        for (size_t i = 0; i < sums[p].size(); ++i) sums[p][i] = sums[p][i] + addends[p][i];
      }
    }
  }
  void hand_on_weights() {
    for (size_t n = 1; n < runs_.size(); ++n) {
      const std::vector<Parameter> from = runs_.front()->parameters(), to = runs_[n]->parameters();
      for (size_t p = 0; p < from.size(); ++p)
        std::memcpy(to[p].weight.data(), from[p].weight.data(), static_cast<size_t>(from[p].weight.bytes()));
    }
  }

  plan::JobSpec job_;
  std::vector<std::unique_ptr<SequentialRun>> runs_;
  std::vector<std::vector<float>> first_moments_;
};

// One for all shapes that must have its bits: they differ from each other in neither of these.
inline const Result& reference_of(const Shape& shape) {
  static std::map<std::string, Result> known;
  const std::string key = job_file(with_whole_experts(shape));
  if (!known.contains(key)) known[key] = Reference(shape).run();
  return known.at(key);
}

inline double largest_difference(const std::vector<double>& found, const std::vector<double>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    largest = std::max(largest, std::abs(found[i] - expected[i]) / expected[i]);
  return largest;
}

// What the coordinator does once every rank has written.
inline std::string commit(const Shape& shape, int64_t step) {
  const plan::JobSpec job = job_of(shape);
  const std::string draft = draft_name("tiny", 1, step);
  CheckpointManifest all;
  for (int rank = 0; rank < job.ranks(); ++rank) {
    CheckpointManifest part =
        parse_manifest(folder().read("checkpoints/" + draft + "/" + part_name(rank, job.ranks()))).value();
    if (rank == 0) {
      all = std::move(part);
    } else {
      all.shards.insert(all.shards.end(), part.shards.begin(), part.shards.end());
    }
  }
  std::vector<ExpectedTensor> weights;
  for (const auto& spec : plan::model_parameters(job.model)) weights.push_back({spec.name, spec.shape});
  const auto path = commit_draft(folder().path("checkpoints"), draft, all, checkpoint_tensors(weights));
  PENSTOCK_CHECK(path.ok(), "{}", message(path.status()));
  return *path;
}

}  // namespace penstock::worker
