// Whole ranks on threads: model, interpreter and optimizer step, behind a barrier and without one. A step without a
// barrier must leave the bits of one behind a barrier, whatever has to be taken back on the way.
#include "worker/executor/post_validated_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <thread>

#include "plan/schedule/families.h"
#include "plan/spec/parameters.h"
#include "worker/executor/global_norm.h"
#include "worker/executor/interpreter.h"
#include "worker/executor/rank_model.h"
#include "worker/executor/testing/text_file.h"
#include "worker/model/activation_type.h"
#include "worker/transport/in_process.h"

namespace penstock::worker {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kSteps = 5;

// What is written over one gradient element of `rank` at the end of `step`.
struct Injection {
  int rank = 0;
  int step = 2;
  double value = 0;
};

struct Training {
  std::string schedule = "1f1b";
  int ranks = 3;
  int microbatch_size = 2;  // of a batch of 8
  double clip = 0;
  std::string nonfinite = "skip";
  std::vector<Injection> injections = {};
};

const std::string& text_file() {
  static const TextFile file("post_validated", 400);
  return file.path();
}

std::string job_file(const Training& run) {
  return fmt::format(R"(name: tiny
model: {{vocab_size: 256, hidden_size: 16, num_hidden_layers: 4, num_attention_heads: 2, num_key_value_heads: 2,
         intermediate_size: 24, max_position_embeddings: 16, rope_theta: 10000, rms_norm_eps: 1e-5,
         hidden_dropout: 0.1}}
data: {{source: {}, tokenizer: bytes, sequence_length: 8}}
train: {{steps: {}, global_batch_size: 8, microbatch_size: {}, dtype: float32, seed: 1,
         optimizer: {{name: adamw, lr: 1e-2, clip_grad_norm: {}, nonfinite: {}}}}}
parallel: {{pipeline: {}, schedule: 1f1b}}
device: {{kind: cpu, threads: 1}}
)",
                     text_file(), kSteps, run.microbatch_size, run.clip, run.nonfinite, run.ranks);
}

using Digests = std::vector<std::array<uint8_t, 16>>;

struct Step {
  double norm = 0;
  double loss = 0;       // 0 but on the rank that has it
  bool stepped = false;  // weights changed before the norm was known
  bool redone = false;
};

PostValidatedStep::SquaredNorms norms_of(RankModel& model) {
  return [&model] { return StatusOr<std::span<const SquaredNorm>>(model.optimizer().local_squared_norms()); };
}

class Rank final : public StepActions {
 public:
  Rank(const Training& run, plan::StepRule rule, const plan::RankProgram& program,
       std::shared_ptr<InProcessHub> hub, Rendezvous& rendezvous)
      : run_(run),
        rule_(rule),
        job_(plan::parse_job_spec(job_file(run)).value()),
        program_(program),
        model_(RankModel::create(job_, program_, {.place = {.pipeline_rank = program_.rank}}).value()),
        links_(LinkBuffers::create(program_, boundary_tensor_bytes(job_)).value()),
        recorder_(std::vector{program_.buffers[0].stage}, program_.microbatches),
        rendezvous_(rendezvous),
        endpoint_(make_in_process_endpoint(std::move(hub))) {}

  Status train() {
    const Status status = run();
    if (!status.ok()) endpoint_->abort(message(status));
    return status;
  }

  const std::vector<Step>& steps() const { return steps_; }
  Digests digests() const {
    Digests digests;
    for (const WeightDigest& digest : model_->parameters().digests()) digests.push_back(digest.digest);
    return digests;
  }

 private:
  Status run() {
    PENSTOCK_RETURN_IF_ERROR(
        endpoint_->open({"pipeline", program_.rank, program_.ranks, "127.0.0.1"}, rendezvous_, 30s));
    PENSTOCK_RETURN_IF_ERROR(meet());
    PENSTOCK_ASSIGN_OR_RETURN(const auto interpreter,
                              Interpreter::create({.program = program_,
                                                   .stages = model_->stages(),
                                                   .pools = model_->pools(),
                                                   .links = links_,
                                                   .endpoint = *endpoint_,
                                                   .actions = *this,
                                                   .recorder = recorder_,
                                                   .clock = clock_,
                                                   .boundary_type = activation_type(job_),
                                                   .boundary_rows = job_.tokens_per_microbatch(),
                                                   .boundary_columns = job_.model.hidden_size}));
    for (int step = 0; step < kSteps; ++step) {
      recorder_.begin(clock_.now(), {});
      PENSTOCK_RETURN_IF_ERROR(interpreter->run(StepIndex(step)));
    }
    return endpoint_->drain();
  }

  Status meet() {
    const auto all = static_cast<int64_t>(plan::model_parameters(job_.model).size());
    std::vector<int32_t> mine;
    for (const Parameter& parameter : model_->parameters().parameters()) mine.push_back(parameter.spec.index);
    if (rule_ == plan::StepRule::Barrier) {
      group_ = {.group = {.name = "pipeline"}, .member = {endpoint_.get(), program_.rank, program_.ranks}};
      for (int rank = 0; rank < program_.ranks; ++rank) group_.group.ranks.emplace_back(rank);
      PENSTOCK_ASSIGN_OR_RETURN(norm_, GlobalNorm::create(group_, mine, {all, 1}));
      return ok_status();
    }
    if (program_.rank.value + 1 < program_.ranks)
      PENSTOCK_RETURN_IF_ERROR(model_->optimizer().allocate_rollback());
    PENSTOCK_ASSIGN_OR_RETURN(
        post_, PostValidatedStep::create({program_.rank, program_.ranks, all}, mine, norms_of(*model_),
                                         model_->optimizer(), *endpoint_, clock_));
    return ok_status();
  }

  Status begin_step(StepIndex) override { return ok_status(); }
  Status reduce_gradients(StepIndex, StageIndex) override { return ok_status(); }

  Status optimizer_step(StepIndex step) override {
    inject(step);
    before_ = digests();
    steps_.push_back({.loss = model_->stages()[0]->loss_sum()});
    if (rule_ == plan::StepRule::Barrier) {
      PENSTOCK_ASSIGN_OR_RETURN(steps_.back().norm,
                                norm_->compute(model_->optimizer().local_squared_norms()));
      return model_->optimizer().apply(step, steps_.back().norm);
    }
    PENSTOCK_RETURN_IF_ERROR(post_->end_step(step));
    steps_.back().stepped = digests() != before_;
    if (step.value + 1 < kSteps) return ok_status();
    PENSTOCK_RETURN_IF_ERROR(validate().status());
    return post_->settle();
  }

  StatusOr<bool> validate_step(StepIndex) override { return post_->is_pending() ? validate() : true; }

  StatusOr<bool> validate() {
    PENSTOCK_ASSIGN_OR_RETURN(const StepVerdict verdict, post_->validate());
    steps_.back().norm = verdict.gradient_norm;
    steps_.back().redone = !verdict.stands;
    if (!std::isfinite(verdict.gradient_norm)) {
      EXPECT_EQ(digests(), before_) << "a skipped step moved a weight";
    }
    return verdict.stands;
  }

  void inject(StepIndex step) {
    for (const Injection& injection : run_.injections) {
      if (injection.rank != program_.rank.value || injection.step != step.value) continue;
      model_->parameters().parameters()[0].gradient.f32()[3] = static_cast<float>(injection.value);
    }
  }

  const Training& run_;
  plan::StepRule rule_;
  plan::JobSpec job_;
  const plan::RankProgram& program_;
  std::unique_ptr<RankModel> model_;
  LinkBuffers links_;
  StepRecorder recorder_;
  SystemClock clock_;
  Rendezvous& rendezvous_;
  JoinedGroup group_;
  std::unique_ptr<GlobalNorm> norm_;
  std::unique_ptr<PostValidatedStep> post_;
  std::unique_ptr<Endpoint> endpoint_;  // ends before what it may still write into
  Digests before_;
  std::vector<Step> steps_;
};

struct Outcome {
  std::vector<Status> statuses;          // [rank]
  std::vector<std::vector<Step>> steps;  // [rank][step]
  std::vector<Digests> weights;          // [rank]

  std::vector<double> losses() const {
    std::vector<double> losses;
    for (const Step& step : steps.back()) losses.push_back(step.loss);
    return losses;
  }
  std::vector<double> norms(size_t rank) const {
    std::vector<double> norms;
    for (const Step& step : steps[rank]) norms.push_back(step.norm);
    return norms;
  }
  // Of each rank in `step`.
  std::vector<bool> stepped(size_t step) const {
    std::vector<bool> stepped;
    for (const auto& of_rank : steps) stepped.push_back(of_rank[step].stepped);
    return stepped;
  }
  std::vector<bool> redone(size_t step) const {
    std::vector<bool> redone;
    for (const auto& of_rank : steps) redone.push_back(of_rank[step].redone);
    return redone;
  }
};

Outcome train(const Training& run, plan::StepRule rule) {
  const auto microbatches = static_cast<int>(plan::parse_job_spec(job_file(run))->microbatches());
  const plan::LoweredProgram program =
      plan::lower(*plan::generate({run.schedule, run.ranks, microbatches, 1}),
                  {.receive_slots_per_link = 1, .send_slots_per_link = 1, .step_rule = rule})
          .value();
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  std::deque<Rank> ranks;
  for (const plan::RankProgram& of_rank : program.ranks)
    ranks.emplace_back(run, rule, of_rank, hub, rendezvous);
  Outcome outcome;
  outcome.statuses.resize(ranks.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] { outcome.statuses[rank] = ranks[rank].train(); });
  for (std::thread& thread : threads) thread.join();
  for (const Rank& rank : ranks) {
    outcome.steps.push_back(rank.steps());
    outcome.weights.push_back(rank.digests());
  }
  return outcome;
}

std::string bits(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += fmt::format("{:a} ", value);  // one text for every nan
  return text;
}

// The run without a barrier, after it was held against the one behind a barrier.
Outcome train_and_compare(const Training& run) {
  const Outcome barrier = train(run, plan::StepRule::Barrier);
  Outcome outcome = train(run, plan::StepRule::PostValidated);
  for (int rank = 0; rank < run.ranks; ++rank) {
    EXPECT_TRUE(barrier.statuses[rank].ok()) << barrier.statuses[rank];
    EXPECT_TRUE(outcome.statuses[rank].ok()) << outcome.statuses[rank];
    EXPECT_EQ(bits(outcome.norms(rank)), bits(barrier.norms(rank))) << "rank " << rank;
  }
  EXPECT_EQ(bits(outcome.losses()), bits(barrier.losses()));
  EXPECT_EQ(outcome.weights, barrier.weights);
  return outcome;
}

std::vector<bool> flags(int ranks, int from, int to) {
  std::vector<bool> flags(ranks, false);
  for (int rank = from; rank < to; ++rank) flags[rank] = true;
  return flags;
}

struct Shape {
  std::string schedule;
  int ranks;
  int microbatch_size;
};

class PostValidated : public ::testing::TestWithParam<Shape> {
 protected:
  Training training(double clip, std::vector<Injection> injections = {}) const {
    const Shape& shape = GetParam();
    return {shape.schedule, shape.ranks, shape.microbatch_size, clip, "skip", std::move(injections)};
  }
  int last() const { return GetParam().ranks - 1; }
};

TEST_P(PostValidated, where_nothing_triggers_all_step_and_nobody_repeats) {
  for (const double clip : {0.0, 1e9}) {
    const Outcome outcome = train_and_compare(training(clip));
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_EQ(outcome.stepped(step), flags(last() + 1, 0, last() + 1));
      EXPECT_EQ(outcome.redone(step), flags(last() + 1, 0, 0));
    }
  }
}

TEST_P(PostValidated, infinity_on_one_rank_is_a_step_that_no_rank_takes) {
  for (const int rank : {0, last() / 2, last()}) {
    const Outcome outcome = train_and_compare(training(0, {{rank, 2, kInfinity}}));
    // Those before the rank had no way to know.
    EXPECT_EQ(outcome.stepped(2), flags(last() + 1, 0, rank)) << "rank " << rank;
    EXPECT_EQ(outcome.redone(2), flags(last() + 1, 0, last() + 1));
    EXPECT_EQ(outcome.redone(3), flags(last() + 1, 0, 0));
  }
}

TEST_P(PostValidated, clip_that_the_last_rank_alone_asks_for_rolls_the_others_back) {
  const Outcome outcome = train_and_compare(training(100, {{last(), 1, 1000}}));
  // The last rank knows the whole norm, and takes the right step at once.
  EXPECT_EQ(outcome.stepped(1), flags(last() + 1, 0, last() + 1));
  EXPECT_EQ(outcome.redone(1), flags(last() + 1, 0, last() + 1));
  EXPECT_EQ(outcome.redone(2), flags(last() + 1, 0, 0));
}

TEST_P(PostValidated, clip_that_the_first_rank_asks_for_already_lets_nobody_step) {
  const Outcome outcome = train_and_compare(training(100, {{0, 1, 1000}}));
  EXPECT_EQ(outcome.stepped(1), flags(last() + 1, last(), last() + 1));
  EXPECT_EQ(outcome.redone(1), flags(last() + 1, 0, last() + 1));
}

TEST_P(PostValidated, repeats_in_every_step_and_in_the_last_leave_the_same_bits) {
  const Outcome clipped = train_and_compare(training(1e-3));
  for (int step = 0; step < kSteps; ++step) EXPECT_THAT(clipped.redone(step), Each(true));
  train_and_compare(training(
      100, {{last(), 0, kInfinity}, {0, 1, 1000}, {last() / 2, 3, std::nan("")}, {last(), 4, 1000}}));
}

INSTANTIATE_TEST_SUITE_P(Shapes, PostValidated,
                         ::testing::Values(Shape{"1f1b", 1, 2}, Shape{"1f1b", 2, 3}, Shape{"1f1b", 3, 8},
                                           Shape{"1f1b", 4, 2}, Shape{"gpipe", 3, 2}, Shape{"zb-h1", 3, 2},
                                           Shape{"zb-h1", 4, 1}, Shape{"zb-h2", 2, 3}, Shape{"zb-h2", 3, 1},
                                           Shape{"zb-h2", 4, 2}, Shape{"zb-h2", 4, 1}),
                         [](const auto& tested) {
                           std::string name = fmt::format("{}_p{}_b{}", tested.param.schedule,
                                                          tested.param.ranks, tested.param.microbatch_size);
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST(PostValidatedFailure, step_whose_norm_is_not_finite_ends_every_rank_with_the_reason) {
  for (const int rank : {0, 1, 2}) {
    const Training run{.schedule = "zb-h2", .nonfinite = "fail", .injections = {{rank, 2, kInfinity}}};
    const Outcome outcome = train(run, plan::StepRule::PostValidated);
    const Outcome barrier = train(run, plan::StepRule::Barrier);
    for (const Outcome* ended : {&outcome, &barrier}) {
      for (const Status& status : ended->statuses) {
        EXPECT_FALSE(status.ok());
        EXPECT_THAT(message(status), HasSubstr("the gradient norm is inf: the run has diverged"));
      }
    }
    EXPECT_EQ(outcome.weights.back(), barrier.weights.back());
  }
}

TEST(PostValidatedFailure, neighbour_in_another_step_is_an_error_and_no_norm) {
  // Two programs that do not belong together would otherwise add up whatever comes.
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  const Training run{.ranks = 2};
  const plan::JobSpec job = plan::parse_job_spec(job_file(run)).value();
  const plan::LoweredProgram program = *plan::lower(*plan::generate({"1f1b", 2, 4, 1}));
  const auto parameters = static_cast<int64_t>(plan::model_parameters(job.model).size());
  std::vector<Status> statuses(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      const auto model =
          RankModel::create(job, program.ranks[rank], {.place = {.pipeline_rank = RankIndex(rank)}}).value();
      ASSERT_TRUE(model->optimizer().allocate_rollback().ok());
      const SystemClock clock;
      std::unique_ptr<PostValidatedStep> step;
      const auto endpoint = make_in_process_endpoint(hub);  // ends before the step, into which it writes
      ASSERT_TRUE(endpoint->open({"pipeline", RankIndex(rank), 2, "127.0.0.1"}, rendezvous, 30s).ok());
      std::vector<int32_t> mine;
      for (const Parameter& parameter : model->parameters().parameters())
        mine.push_back(parameter.spec.index);
      step = PostValidatedStep::create({RankIndex(rank), 2, parameters}, mine, norms_of(*model),
                                       model->optimizer(), *endpoint, clock)
                 .value();
      statuses[rank] = step->end_step(StepIndex(7 + rank));
      if (statuses[rank].ok()) statuses[rank] = step->validate().status();
      endpoint->abort(message(statuses[rank]));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(statuses[1].code(), StatusCode::kDataLoss);
  EXPECT_THAT(message(statuses[1]), HasSubstr("gradient norm of step 8"));
  EXPECT_THAT(message(statuses[1]), HasSubstr("of step 7"));
  EXPECT_EQ(statuses[0].code(), StatusCode::kAborted);
}

}  // namespace
}  // namespace penstock::worker
