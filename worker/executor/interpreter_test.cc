#include "worker/executor/interpreter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "plan/schedule/families.h"
#include "plan/verification/verify.h"
#include "worker/executor/testing/scalar_pipeline.h"

namespace penstock::worker {
namespace {

// A model that can be computed by hand: stage s is y = tanh(w_s x + s), the last one's loss is y^2.
struct ScalarModel {
  static double input(int64_t step, int64_t microbatch) { return std::sin(1.0 + 7 * step + microbatch); }
  static double initial_weight(int stage) { return 0.5 + 0.125 * stage; }
  static constexpr double kLearningRate = 0.1;
};

class ScalarStage : public Stage {
 public:
  ScalarStage(const plan::StageBuffers& buffers, const plan::RankProgram& program)
      : index_(buffers.stage),
        last_(index_.value + 1 == program.stages),
        weight_(ScalarModel::initial_weight(index_.value)),
        saved_(buffers.activation_slots) {}

  StageIndex index() const override { return index_; }
  void begin_step(StepIndex) override { loss_ = 0; }

  Status forward(const StageCall& call) override {
    if (fails_at_ == call.microbatch) return out_of_range("the data has run out");
    const double x = index_.value == 0 ? ScalarModel::input(call.step.value, call.microbatch.value)
                                       : scalar_of(call.input);
    const double y = std::tanh(weight_ * x + index_.value);
    saved_[call.slot] = {x, y};
    if (last_) loss_ += y * y;
    if (!last_) scalar_of(call.output) = y;
    return ok_status();
  }

  Status backward(const StageCall& call) override {
    PENSTOCK_RETURN_IF_ERROR(input_gradient(call));
    return weight_gradient(call);
  }

  Status input_gradient(const StageCall& call) override {
    auto& [x, y] = saved_[call.slot];
    const double dy = last_ ? 2 * y : scalar_of(call.input);
    const double inner = dy * (1 - y * y);
    if (index_.value > 0) scalar_of(call.output) = inner * weight_;
    y = inner;  // what the weight gradient needs
    return ok_status();
  }

  Status weight_gradient(const StageCall& call) override {
    const auto& [x, inner] = saved_[call.slot];
    gradient_ += inner * x;
    return ok_status();
  }

  bool has_loss() const override { return last_; }
  double loss_sum() const override { return loss_; }
  double weight() const { return weight_; }
  double& gradient() { return gradient_; }
  void update() { weight_ -= ScalarModel::kLearningRate * std::exchange(gradient_, 0); }
  void fail_at(MicrobatchIndex microbatch) { fails_at_ = microbatch; }

 private:
  StageIndex index_;
  bool last_;
  double weight_;
  double gradient_ = 0;
  double loss_ = 0;
  MicrobatchIndex fails_at_;
  std::vector<std::pair<double, double>> saved_;
};

struct Outcome {
  std::vector<double> losses;   // [step]
  std::vector<double> weights;  // [stage]
  bool operator==(const Outcome&) const = default;
};

// The same by one loop, which is all that a pipeline may compute.
Outcome directly(int stages, int microbatches, int steps) {
  Outcome outcome;
  for (int s = 0; s < stages; ++s) outcome.weights.push_back(ScalarModel::initial_weight(s));
  for (int step = 0; step < steps; ++step) {
    std::vector<double> gradients(stages, 0.0);
    double loss = 0;
    for (int m = 0; m < microbatches; ++m) {
      std::vector<double> values = {ScalarModel::input(step, m)};
      for (int s = 0; s < stages; ++s) values.push_back(std::tanh(outcome.weights[s] * values.back() + s));
      loss += values.back() * values.back();
      double dy = 2 * values.back();
      for (int s = stages - 1; s >= 0; --s) {
        const double inner = dy * (1 - values[s + 1] * values[s + 1]);
        gradients[s] += inner * values[s];
        dy = inner * outcome.weights[s];
      }
    }
    for (int s = 0; s < stages; ++s) outcome.weights[s] -= ScalarModel::kLearningRate * gradients[s];
    outcome.losses.push_back(loss);
  }
  return outcome;
}

Outcome outcome_of(const ScalarPipeline<ScalarStage>& pipeline, int stages) {
  Outcome outcome;
  outcome.weights.resize(stages);
  for (const auto& rank : pipeline.ranks()) {
    outcome.losses.resize(std::max(outcome.losses.size(), rank.losses().size()));
    for (size_t step = 0; step < rank.losses().size(); ++step) outcome.losses[step] += rank.losses()[step];
    for (const ScalarStage& stage : rank.stages()) {
      double& weight = outcome.weights[stage.index().value];
      if (weight != 0) {
        EXPECT_EQ(weight, stage.weight()) << "replicas part";
      }
      weight = stage.weight();
    }
  }
  return outcome;
}

struct Shape {
  std::string schedule;
  int ranks;
  int microbatches;
  int stages_per_rank;
};

// Every schedule that workers run, with even and odd numbers of microbatches, few and many.
std::vector<Shape> catalogue() {
  std::vector<Shape> shapes;
  for (const std::string& name : plan::schedule_names()) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int microbatches : {1, 2 * ranks, 2 * ranks + 3}) {
        const auto program = plan::generate(
            {.name = name, .ranks = ranks, .microbatches = microbatches, .stages_per_rank = 0});
        if (program.ok()) shapes.push_back({name, ranks, microbatches, program->stages_per_rank});
      }
    }
  }
  return shapes;
}

plan::ComputeProgram program_of(const Shape& shape) {
  return plan::generate({shape.schedule, shape.ranks, shape.microbatches, shape.stages_per_rank}).value();
}

class InterpreterOverSchedules : public ::testing::TestWithParam<Shape> {};

TEST_P(InterpreterOverSchedules, computes_what_one_loop_computes_bit_for_bit) {
  // The numerics contract in its smallest form: losses and weights do not know the schedule.
  constexpr int kSteps = 3;
  const plan::ComputeProgram program = program_of(GetParam());
  ScalarPipeline<ScalarStage> pipeline(plan::lower(program).value());
  for (const Status& status : pipeline.run(kSteps)) ASSERT_TRUE(status.ok()) << status;
  const Outcome expected = directly(program.stages(), program.microbatches, kSteps);
  const Outcome found = outcome_of(pipeline, program.stages());
  if (plan::adds_in_an_order_of_its_own(GetParam().schedule)) {
    for (int s = 0; s < program.stages(); ++s) EXPECT_NEAR(found.weights[s], expected.weights[s], 1e-14);
  } else {
    EXPECT_EQ(found, expected);
  }

  std::vector<int> peaks(static_cast<size_t>(program.stages()));
  for (int rank = 0; rank < program.ranks; ++rank) {
    const auto& pools = pipeline.rank(rank).pools();
    EXPECT_EQ(pipeline.rank(rank).reductions(), kSteps * static_cast<int>(pools.size()));
    for (const ActivationPool& pool : pools) {
      EXPECT_EQ(pool.held_peak(), pool.capacity());
      int& peak = peaks[pool.stage().value];
      peak = std::max(peak, pool.held_peak());  // of two replicas the larger
    }
  }
  EXPECT_EQ(peaks, plan::high_water_per_stage(program));
}

std::string name_of(const ::testing::TestParamInfo<Shape>& tested) {
  std::string name = fmt::format("{}_p{}_m{}_v{}", tested.param.schedule, tested.param.ranks,
                                 tested.param.microbatches, tested.param.stages_per_rank);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, InterpreterOverSchedules, ::testing::ValuesIn(catalogue()), name_of);
INSTANTIATE_TEST_SUITE_P(MoreStages, InterpreterOverSchedules,
                         ::testing::Values(Shape{"interleaved-1f1b", 2, 5, 3}, Shape{"looped-bfs", 2, 5, 3}),
                         name_of);

TEST(Interpreter, failure_of_a_stage_names_instruction_and_reason_and_the_others_hear_of_it) {
  const plan::ComputeProgram program = program_of({"1f1b", 3, 4, 1});
  ScalarPipeline<ScalarStage> pipeline(plan::lower(program).value());
  pipeline.rank(1).stages()[0].fail_at(MicrobatchIndex(2));
  const std::vector<Status> statuses = pipeline.run(1);
  EXPECT_EQ(statuses[1].code(), StatusCode::kOutOfRange);
  EXPECT_NE(message(statuses[1]).find("compute 1F2"), std::string::npos) << statuses[1];
  EXPECT_NE(message(statuses[1]).find("the data has run out"), std::string::npos) << statuses[1];
  for (const int other : {0, 2}) {
    EXPECT_EQ(statuses[other].code(), StatusCode::kAborted);
    EXPECT_NE(message(statuses[other]).find("rank 1"), std::string::npos) << statuses[other];
    EXPECT_NE(message(statuses[other]).find("the data has run out"), std::string::npos) << statuses[other];
  }
}

// Says that each of its calls waited an hour for other ranks.
class WaitingStage final : public ScalarStage {
 public:
  using ScalarStage::ScalarStage;
  Duration take_waited() override { return 3600s; }
};

TEST(Interpreter, what_a_computation_waits_for_other_ranks_is_wait_and_none_of_the_stage_s_time) {
  ScalarPipeline<WaitingStage> pipeline(plan::lower(program_of({"1f1b", 1, 3, 1})).value());
  for (const Status& status : pipeline.run(1)) ASSERT_TRUE(status.ok()) << status;
  const StepReport& report = pipeline.rank(0).report();
  EXPECT_GE(report.wait_seconds, 6 * 3600);
  EXPECT_LT(report.wait_seconds, 6 * 3600 + 60);
  EXPECT_LT(report.stages[0].forward_seconds, -3540) << "it took less than a minute";
  EXPECT_LT(report.stages[0].backward_seconds, -3540);
}

// What a rank's program is resolved with.
class ScalarParts {
 public:
  explicit ScalarParts(const plan::RankProgram& program)
      : program_(program), links_(LinkBuffers::create(program, sizeof(double)).value()) {
    for (const plan::StageBuffers& buffers : program.buffers) {
      stages_.emplace_back(buffers, program);
      slabs_.push_back(kernels::Slab::allocate(64 * buffers.activation_slots, "test").value());
      pools_.emplace_back(buffers.stage, buffers.activation_slots, 64, slabs_.back().view());
    }
  }

  StatusOr<ResolvedProgram> resolved() {
    std::vector<Stage*> stages;
    std::vector<ActivationPool*> pools;
    for (ScalarStage& stage : stages_) stages.push_back(&stage);
    for (ActivationPool& pool : pools_) pools.push_back(&pool);
    return resolve(program_, stages, pools, links_);
  }

 private:
  const plan::RankProgram& program_;
  LinkBuffers links_;
  std::deque<ScalarStage> stages_;
  std::deque<kernels::Slab> slabs_;
  std::deque<ActivationPool> pools_;
};

// Programs that verification would refuse must still be an error here, never a wrong number.
class BrokenProgram : public ::testing::Test {
 protected:
  Status create(const plan::RankProgram& program) { return ScalarParts(program).resolved().status(); }
  plan::RankProgram middle_ = plan::lower(program_of({"1f1b", 3, 2, 1}))->ranks[1];

  void erase(plan::InstructionKind kind) {
    std::erase_if(middle_.instructions, [kind](const plan::Instruction& i) { return i.kind == kind; });
  }
};

// The instructions of rank 0 in the order in which it runs them.
std::vector<std::string> running_order(const plan::ComputeProgram& program) {
  EXPECT_TRUE(plan::verify(program).valid());
  const plan::LoweredProgram lowered = plan::lower(program).value();
  std::vector<std::string> texts;
  ScalarParts parts(lowered.ranks[0]);
  const ResolvedProgram resolved = parts.resolved().value();
  for (const ResolvedInstruction& each : resolved.instructions) {
    texts.push_back(plan::to_string(*each.source));
  }
  EXPECT_EQ(texts.size(), lowered.ranks[0].instructions.size());
  return texts;
}

TEST(OverlappedPair, one_half_s_transfers_pass_under_the_other_s_computation) {
  // Rank 0 of 2: stage 0 sends activations to stage 1 and gets gradients of it.
  plan::ComputeProgram program = program_of({"1f1b", 2, 3, 1});
  const auto set = [&](int rank, const std::vector<std::string>& actions) {
    program.actions[static_cast<size_t>(rank)].clear();
    for (const std::string& text : actions) {
      program.actions[static_cast<size_t>(rank)].push_back(plan::parse_action(text).value());
    }
  };
  set(0, {"0F0", "0F1", "O(0F2;0B0)", "0B1", "0B2"});
  set(1, {"1F0", "1B0", "1F1", "1B1", "1F2", "1B2"});
  const std::vector<std::string> texts = running_order(program);
  const auto pair = std::find(texts.begin(), texts.end(), "compute 0F2 version 0 with the next");
  ASSERT_LT(pair, texts.end() - 4);
  EXPECT_EQ(pair[1], "send activation of stage 0 microbatch 2 to rank 1 slot 0");
  EXPECT_EQ(pair[2], "wait receive of gradient of stage 0 microbatch 0 from rank 1 slot 0");
  EXPECT_EQ(pair[3], "compute 0B0 version 0");

  // The other way round: the wait stands before the pair, the send behind it.
  set(0, {"0F0", "0F1", "O(0B0;0F2)", "0B1", "0B2"});
  const std::vector<std::string> turned = running_order(program);
  const auto first = std::find(turned.begin(), turned.end(), "compute 0B0 version 0 with the next");
  ASSERT_LT(first, turned.end() - 3);
  EXPECT_EQ(first[-1], "wait receive of gradient of stage 0 microbatch 0 from rank 1 slot 0");
  EXPECT_EQ(first[1], "compute 0F2 version 0");
  EXPECT_EQ(first[2], "send activation of stage 0 microbatch 2 to rank 1 slot 0");
}

TEST_F(BrokenProgram, whole_program_resolves) {
  const Status status = create(middle_);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(BrokenProgram, compute_without_its_input_is_named) {
  erase(plan::InstructionKind::WaitReceive);
  const Status status = create(middle_);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(message(status).find("compute 1F0"), std::string::npos) << status;
  EXPECT_NE(message(status).find("its input has not been delivered"), std::string::npos) << status;
}

TEST_F(BrokenProgram, compute_without_a_lease_is_named) {
  erase(plan::InstructionKind::AcquireActivation);
  EXPECT_NE(message(create(middle_)).find("no activation slot is leased"), std::string::npos);
}

TEST_F(BrokenProgram, output_that_nothing_passes_on_is_named) {
  erase(plan::InstructionKind::Send);
  erase(plan::InstructionKind::WaitSend);
  EXPECT_NE(message(create(middle_)).find("nothing passes on what stage 1 made"), std::string::npos);
}

TEST_F(BrokenProgram, link_that_is_not_declared_is_named) {
  middle_.links.clear();
  EXPECT_NE(message(create(middle_)).find("uses link 0>1"), std::string::npos) << create(middle_);
}

TEST_F(BrokenProgram, slot_beyond_the_link_is_named) {
  for (plan::Instruction& instruction : middle_.instructions) {
    if (instruction.kind == plan::InstructionKind::PostReceive) instruction.slot = 1000;
  }
  EXPECT_NE(message(create(middle_)).find("the link has"), std::string::npos) << create(middle_);
}

}  // namespace
}  // namespace penstock::worker
