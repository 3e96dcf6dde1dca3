// The real interpreter plays pipedream and pipedream-2bw over scalar stages with plain SGD, a thread a rank: the weights
// at the end are those of the papers' recurrences.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "plan/schedule/families.h"
#include "plan/schedule/testing/expected_async.h"
#include "plan/schedule/weight_versions.h"
#include "worker/executor/testing/scalar_pipeline.h"

namespace penstock::worker {
namespace {

using plan::testing::kLearningRate;
using plan::testing::kSamples;
using plan::testing::kTrained;
using plan::testing::Sample;
using plan::testing::Trained;

double initial_weight(int stage) {
  return 1.0 + stage / 20.0;
}

// y = w x; the last one's loss is (y - t)^2 / 2. It keeps the versions that its rank's program asks for and no more.
class ChainStage final : public Stage {
 public:
  ChainStage(const plan::StageBuffers& buffers, const plan::RankProgram& program)
      : index_(buffers.stage),
        last_(index_.value + 1 == program.stages),
        microbatches_(program.microbatches),
        updates_(program.updates),
        most_(static_cast<size_t>(plan::weight_versions_held(program).by_all)),
        versions_{initial_weight(index_.value)},
        saved_(buffers.activation_slots) {}

  StageIndex index() const override { return index_; }
  void begin_step(StepIndex) override { loss_ = 0; }

  Status forward(const StageCall& call) override {
    PENSTOCK_ASSIGN_OR_RETURN(const double weight, version(call.weight_version));
    const Sample& sample = kSamples[call.step.value * microbatches_ + call.microbatch.value];
    const double x = index_.value == 0 ? sample.input : scalar_of(call.input);
    const double y = weight * x;
    saved_[call.slot] = {x, y - sample.target};
    if (last_) loss_ += (y - sample.target) * (y - sample.target) / 2;
    if (!last_) scalar_of(call.output) = y;
    return ok_status();
  }

  Status backward(const StageCall& call) override {
    PENSTOCK_ASSIGN_OR_RETURN(const double weight, version(call.weight_version));
    const auto& [x, error] = saved_[call.slot];
    const double gradient = last_ ? error : scalar_of(call.input);
    gradient_ += gradient * x;
    if (index_.value > 0) scalar_of(call.output) = gradient * weight;
    return ok_status();
  }

  Status input_gradient(const StageCall&) override { return unimplemented("whole backwards only"); }
  Status weight_gradient(const StageCall&) override { return unimplemented("whole backwards only"); }
  bool has_loss() const override { return last_; }
  double loss_sum() const override { return loss_; }

  void update() {
    versions_.push_back(versions_.back() - kLearningRate * std::exchange(gradient_, 0) / microbatches_);
    if (versions_.size() > most_) versions_.pop_front();
    if (++newest_ == updates_) newest_ = 0;
  }
  double weight() const { return versions_.back(); }
  double& gradient() { return gradient_; }

 private:
  StatusOr<double> version(int number) const {
    const int age = newest_ - number;
    if (age >= 0 && age < static_cast<int>(versions_.size())) return versions_[versions_.size() - 1 - age];
    return internal_error("version {} after {} updates, {} are held", number, newest_, versions_.size());
  }

  StageIndex index_;
  bool last_;
  int microbatches_;
  int updates_;
  size_t most_;
  std::deque<double> versions_;  // the newest last
  int newest_ = 0;               // of this run of the program
  double gradient_ = 0;
  double loss_ = 0;
  std::vector<std::pair<double, double>> saved_;  // input and error
};

struct Outcome {
  std::vector<double> losses;
  std::vector<double> weights;
};

Outcome run(const plan::ScheduleRequest& request, int runs = 1) {
  ScalarPipeline<ChainStage> pipeline(plan::lower(plan::generate(request).value()).value());
  for (const Status& status : pipeline.run(runs)) EXPECT_TRUE(status.ok()) << status;
  Outcome outcome;
  for (const auto& rank : pipeline.ranks()) {
    outcome.weights.push_back(rank.stages().front().weight());
    if (!rank.losses().empty()) outcome.losses = rank.losses();
  }
  return outcome;
}

TEST(AsynchronousWeights, interpreter_trains_to_the_weights_of_the_recurrences) {
  ASSERT_EQ(std::size(kTrained), 22u);
  for (const Trained& trained : kTrained) {
    SCOPED_TRACE(fmt::format("{} P={} m={} updates={}", trained.schedule, trained.ranks, trained.microbatches,
                             trained.updates));
    const Outcome outcome = run({.name = trained.schedule,
                                 .ranks = trained.ranks,
                                 .microbatches = trained.microbatches,
                                 .updates = trained.updates});
    ASSERT_EQ(outcome.weights.size(), trained.weights.size());
    for (size_t stage = 0; stage < trained.weights.size(); ++stage)
      EXPECT_NEAR(outcome.weights[stage], trained.weights[stage], 1e-12) << "stage " << stage;
  }
}

// Which version a stage reads for microbatch k of a run, from the order of 1F1B without a flush: forward k follows
// k - w backwards, w being the forwards that the stage runs ahead, and the version is what their updates made.
int version_of(const plan::ScheduleRequest& request, int stage, int k) {
  if (request.name == "pipedream-2bw") return std::max(k / request.microbatches - 1, 0);
  return std::max(k - (request.ranks - 1 - stage), 0) / request.microbatches;
}

// The same by one loop over microbatches, with every version kept for ever.
Outcome directly(const plan::ScheduleRequest& request, int runs) {
  Outcome outcome;
  for (int s = 0; s < request.ranks; ++s) outcome.weights.push_back(initial_weight(s));
  int sample = 0;
  for (int run = 0; run < runs; ++run) {
    std::vector<std::vector<double>> made = {outcome.weights};  // [version][stage]
    for (int update = 0; update < request.updates; ++update) {
      std::vector<double> gradients(request.ranks, 0.0);
      double loss = 0;
      for (int i = 0; i < request.microbatches; ++i, ++sample) {
        const int k = update * request.microbatches + i;
        const auto weight = [&](int s) { return made[version_of(request, s, k)][s]; };
        std::vector<double> values = {kSamples[sample].input};
        for (int s = 0; s < request.ranks; ++s) values.push_back(weight(s) * values.back());
        double gradient = values.back() - kSamples[sample].target;
        loss += gradient * gradient / 2;
        for (int s = request.ranks - 1; s >= 0; --s) {
          gradients[s] += gradient * values[s];
          gradient *= weight(s);
        }
      }
      outcome.losses.push_back(loss);
      for (int s = 0; s < request.ranks; ++s)
        outcome.weights[s] -= kLearningRate * gradients[s] / request.microbatches;
      made.push_back(outcome.weights);
    }
  }
  return outcome;
}

TEST(AsynchronousWeights, a_run_of_the_program_begins_drained_and_a_loss_belongs_to_its_update) {
  // Forwards of the next update run before a step: their losses, their gradients and what they read must not mix.
  for (const plan::ScheduleRequest& request : std::vector<plan::ScheduleRequest>{
           {.name = "pipedream", .ranks = 4, .microbatches = 1, .updates = 5},
           {.name = "pipedream", .ranks = 4, .microbatches = 2, .updates = 3},
           {.name = "pipedream", .ranks = 3, .microbatches = 4, .updates = 2},
           {.name = "pipedream-2bw", .ranks = 4, .microbatches = 2, .updates = 4},
           {.name = "pipedream-2bw", .ranks = 3, .microbatches = 3, .updates = 2}}) {
    SCOPED_TRACE(fmt::format("{} P={} m={}", request.name, request.ranks, request.microbatches));
    const int runs = 3;
    const Outcome expected = directly(request, runs), found = run(request, runs);
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(found.weights, expected.weights);
  }
}

TEST(AsynchronousWeights, one_update_a_run_is_synchronous_training) {
  const auto weights = [](const std::string& name, int updates, int runs) {
    return run({.name = name, .ranks = 3, .microbatches = 4, .updates = updates}, runs).weights;
  };
  const std::vector<double> synchronous = weights("1f1b", 1, 6);
  EXPECT_EQ(weights("pipedream", 1, 6), synchronous);
  EXPECT_EQ(weights("pipedream-2bw", 1, 6), synchronous);
  EXPECT_NE(weights("pipedream", 6, 1), synchronous);
  EXPECT_NE(weights("pipedream-2bw", 6, 1), synchronous);
}

// A program that adds to the gradients of an update that is not under way is refused before it runs.
TEST(AsynchronousWeights, gradients_of_two_updates_are_never_mixed) {
  plan::RankProgram program =
      plan::lower(plan::generate({.name = "pipedream", .ranks = 1, .microbatches = 1, .updates = 2}).value())
          ->ranks[0];
  const auto resolved = [&] {
    LinkBuffers links = LinkBuffers::create(program, 8).value();
    ChainStage stage(program.buffers[0], program);
    const kernels::Slab slab = kernels::Slab::allocate(64, "test").value();
    ActivationPool pool(program.buffers[0].stage, 1, 64, slab.view());
    return resolve(program, {&stage}, {&pool}, links).status();
  };
  ASSERT_TRUE(resolved().ok()) << resolved();
  const auto is_step = [](const plan::Instruction& i) {
    return i.kind == plan::InstructionKind::OptimizerStep;
  };
  const auto first = std::find_if(program.instructions.begin(), program.instructions.end(), is_step);
  std::rotate(first, first + 1, program.instructions.end());
  EXPECT_EQ(resolved().code(), StatusCode::kInternal);
  EXPECT_NE(message(resolved()).find("compute 0F1 version 1"), std::string::npos) << resolved();
  EXPECT_NE(message(resolved()).find("adds to the gradients of update 1 after 0 optimizer steps"),
            std::string::npos)
      << resolved();
}

}  // namespace
}  // namespace penstock::worker
