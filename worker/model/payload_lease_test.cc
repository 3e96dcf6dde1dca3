// Why payloads are leased: without the rule a later forward writes over rows that an earlier microbatch's weight
// gradient has still to read, and nothing but the gradient's bits tells.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/payload_slots.h"
#include "worker/buffers/testing/lease_rule_off.h"
#include "worker/model/testing/sequential_run.h"

namespace penstock::worker {
namespace {

class PayloadLeaseTest : public ::testing::Test {
 protected:
  PayloadLeaseTest() {
    path_ = std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_leases_{}.txt", ::getpid());
    std::mt19937 random(5);
    std::string text(2000, 0);
    for (char& c : text) c = static_cast<char>(random() % 128);
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~PayloadLeaseTest() override { std::filesystem::remove(path_); }

  plan::JobSpec job() const {
    plan::JobSpec job;
    job.model.vocab_size = 128;
    job.model.hidden_size = 24;
    job.model.num_hidden_layers = 2;
    job.model.num_attention_heads = 2;
    job.model.num_key_value_heads = 2;
    job.model.intermediate_size = 32;
    job.model.initializer_range = 0.2;
    job.model.moe = {.num_experts = 4,
                     .num_experts_per_tok = 2,
                     .moe_intermediate_size = 16,
                     .layers = {0, 1},
                     .norm_topk_prob = true,
                     .router_aux_loss_coef = 0.1};
    job.data.sources = {path_};
    job.data.sequence_length = 12;
    job.train.global_batch_size = 8;
    job.train.microbatch_size = 1;
    job.train.seed = 1;
    return job;
  }

  std::filesystem::path path_;
};

// What a stage of a program does, done with the whole model.
struct Play {
  const plan::RankProgram& program;
  StageIndex stage;
  std::function<void()> before_forward = [] {};
  std::function<void()> before_backward = [] {};
};

void play(const Play& play, SequentialRun& run) {
  run.begin_step(0);
  for (const plan::Instruction& instruction : play.program.instructions) {
    if (instruction.kind != plan::InstructionKind::Compute || instruction.work.stage != play.stage) continue;
    const int64_t microbatch = instruction.work.microbatch.value;
    const bool is_forward = instruction.work.kind == plan::ActionKind::Forward;
    (is_forward ? play.before_forward : play.before_backward)();
    switch (instruction.work.kind) {
      case plan::ActionKind::Forward:
        run.forward(microbatch);
        break;
      case plan::ActionKind::Backward:
        run.backward(microbatch);
        break;
      case plan::ActionKind::InputGradient:
        run.input_gradient(microbatch);
        break;
      case plan::ActionKind::WeightGradient:
        run.weight_gradient(microbatch);
        break;
    }
  }
}

plan::LoweredProgram lowered(const std::string& schedule, int ranks, int microbatches) {
  return plan::lower(plan::generate({.name = schedule, .ranks = ranks, .microbatches = microbatches}).value())
      .value();
}

struct Difference {
  double relative = 0;  // of the largest element
  bool same_bits = true;
  bool finite = true;
};

Difference difference(const kernels::TensorView& found, const kernels::TensorView& right) {
  Difference result{.same_bits =
                        std::memcmp(found.data(), right.data(), static_cast<size_t>(right.bytes())) == 0};
  double largest = 0, scale = 0;
  for (int64_t i = 0; i < right.elements(); ++i) {
    result.finite = result.finite && std::isfinite(found.f32()[i]);
    largest = std::max<double>(largest, std::abs(found.f32()[i] - right.f32()[i]));
    scale = std::max<double>(scale, std::abs(right.f32()[i]));
  }
  result.relative = largest / scale;
  return result;
}

bool reads_payload(const std::string& parameter) {
  return parameter.find("experts") != std::string::npos && parameter.find("down_proj") == std::string::npos;
}

TEST_F(PayloadLeaseTest, without_the_rule_gradients_are_finite_and_wrong) {
  const plan::LoweredProgram program = lowered("1f1b", 4, 8);
  const int slots = plan::payload_high_water(program.ranks[0], StageIndex(0)).inputs;
  ASSERT_EQ(slots, 4);
  SequentialRun right(job(), cut(job().model));
  right.run_step(0);  // no microbatch beside another
  // Slots that are poisoned when they are released would tell.
  SequentialRun wrong(job(), cut(job().model), 1, plan::BackwardForm::Fused,
                      {.slots = slots, .checks_memory = false});
  const auto for_pools = [&](void (*mark)(PayloadPool&)) {
    for (const auto& pool : wrong.payloads(0).pools()) mark(*pool);
  };
  play({.program = program.ranks[0],
        .stage = StageIndex(0),
        .before_forward = [&] { for_pools(&LeaseRuleOff::end_all); },
        .before_backward = [&] { for_pools(&LeaseRuleOff::resume_all); }},
       wrong);
  for_pools(&LeaseRuleOff::end_all);

  EXPECT_EQ(wrong.loss_sum(), right.loss_sum()) << "the loss does not tell";
  const std::vector<Parameter> expected = right.parameters(), found = wrong.parameters();
  int corrupted = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const Difference is = difference(found[i].gradient, expected[i].gradient);
    EXPECT_TRUE(is.finite) << expected[i].spec.name;
    EXPECT_EQ(is.same_bits, !reads_payload(expected[i].spec.name)) << expected[i].spec.name;
    if (is.same_bits) continue;
    ++corrupted;
    EXPECT_GT(is.relative, 0.05) << expected[i].spec.name;
  }
  EXPECT_EQ(corrupted, 2 * 4 * 2) << "gate and up of every expert of both blocks";
}

TEST_F(PayloadLeaseTest,
       with_the_rule_every_stage_of_every_schedule_has_the_right_bits_in_the_predicted_slots) {
  SequentialRun right(job(), cut(job().model));
  right.run_step(0);
  const std::vector<Parameter> expected = right.parameters();
  for (const std::string& name : plan::schedule_names()) {
    const plan::LoweredProgram program = lowered(name, 4, 8);
    for (const plan::RankProgram& rank : program.ranks) {
      for (const plan::StageBuffers& buffers : rank.buffers) {
        if (buffers.twin.is_set()) continue;  // half of the microbatches: another sum
        SCOPED_TRACE(fmt::format("{} stage {}", name, buffers.stage.value));
        const int slots = plan::payload_high_water(rank, buffers.stage).inputs;
        SequentialRun run(job(), cut(job().model), 1, buffers.backward, {.slots = slots});
        play({.program = rank, .stage = buffers.stage}, run);
        for (const auto& pool : run.payloads(0).pools()) {
          EXPECT_EQ(pool->held(), 0);
          EXPECT_EQ(pool->held_peak(), slots);
        }
        const std::vector<Parameter> found = run.parameters();
        for (size_t i = 0; i < expected.size(); ++i) {
          const Difference is = difference(found[i].gradient, expected[i].gradient);
          EXPECT_TRUE(program.bit_identical ? is.same_bits : is.relative < 1e-5) << expected[i].spec.name;
        }
      }
    }
  }
}

TEST_F(PayloadLeaseTest, one_slot_less_than_predicted_is_an_error_that_names_the_oldest_lease) {
  SequentialRun run(job(), cut(job().model), 1, plan::BackwardForm::Fused, {.slots = 2});
  run.begin_step(0);
  run.forward(0);
  run.forward(1);
  const Status status =
      run.stage(0).forward({.step = StepIndex(0), .microbatch = MicrobatchIndex(2), .slot = 2});
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(message(status).starts_with(
      "stage 0 layer 0: microbatch 2 asked for a slot of payload inputs; all 2 are "
      "held, the oldest lease is microbatch 0's on slot 0"))
      << message(status);
}

TEST_F(PayloadLeaseTest, forwards_whose_backwards_will_not_come_are_forgotten) {
  // A warm-up that is computed anew: its activation slots are free again, and so must be the payloads.
  SequentialRun run(job(), cut(job().model), 1, plan::BackwardForm::Fused, {.slots = 2});
  run.begin_step(0);
  run.forward(0);
  run.forward(1);
  run.stage(0).forget_forwards();
  for (const auto& pool : run.payloads(0).pools()) EXPECT_EQ(pool->held(), 0);
  run.run_step(0);
  SequentialRun right(job(), cut(job().model));
  right.run_step(0);
  EXPECT_EQ(run.loss_sum(), right.loss_sum());
}

}  // namespace
}  // namespace penstock::worker
