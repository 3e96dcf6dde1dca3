// The verifier, the lowering and the separate checker against each other, over many shapes and over random
// programs. Every failure prints the seed that repeats it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/post_validation.h"
#include "plan/verification/testing/random_programs.h"
#include "plan/verification/verify.h"
#include "tests/programs/checker.h"

namespace penstock::plan {
namespace {

using checking::check;
using checking::Checked;
using judging::draw;
using judging::Random;

std::string first_violation(const Verdict& verdict) {
  return verdict.valid() ? "" : verdict.violations.front().to_string();
}

std::string print(const ComputeProgram& program) {
  std::string text = fmt::format("P={} V={} m={} updates={} rule={} forward_only={}\n", program.ranks,
                                 program.stages_per_rank, program.microbatches, program.updates,
                                 static_cast<int>(program.version_rule), program.forward_only);
  for (const auto& actions : program.actions) {
    for (const Action& action : actions) text += to_string(action) + " ";
    text += "\n";
  }
  return text;
}

void expect_sound(const ComputeProgram& program, const LoweringOptions& options) {
  const Verdict of_compute = verify(program);
  ASSERT_EQ(first_violation(of_compute), "") << print(program);
  ASSERT_EQ(check(program), "") << print(program);
  const StatusOr<LoweredProgram> lowered = lower(program, options);
  ASSERT_TRUE(lowered.ok()) << lowered.status() << "\n" << print(program);
  const Verdict verdict = verify(*lowered);
  EXPECT_EQ(first_violation(verdict), "") << print(program);
  EXPECT_EQ(verdict.high_water, of_compute.high_water);
  EXPECT_EQ(verdict.bit_identical, of_compute.bit_identical);
  const Checked checked = check(*lowered);
  EXPECT_EQ(checked.why, "") << print(program);
  EXPECT_TRUE(checked.buffered && checked.rendezvous);
  EXPECT_TRUE(verdict.holds.buffered && verdict.holds.rendezvous);
  EXPECT_EQ(verdict.holds.in_order_queue, checked.in_order_queue) << print(program);
  EXPECT_TRUE(options.posting == Posting::Early || checked.in_order_queue) << print(program);
  for (const RankProgram& rank : lowered->ranks) {
    EXPECT_EQ(first_violation(verify(rank)), "");
    for (const StageBuffers& buffers : rank.buffers) {
      const int high_water = verdict.high_water[buffers.stage.value];
      EXPECT_LE(buffers.activation_slots, high_water);
      EXPECT_TRUE(program.has_replicas() || buffers.activation_slots == high_water);
    }
  }
}

TEST(Agreement, every_family_and_shape_is_valid_and_runs_as_it_is_lowered_for) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (const int m : {1, 2, 3, 5, 8, 11}) {
      for (const std::string& name : schedule_names()) {
        for (int chunks = 1; chunks <= 3; ++chunks) {
          const StatusOr<ComputeProgram> program =
              generate({.name = name, .ranks = ranks, .microbatches = m, .stages_per_rank = chunks});
          if (!program.ok()) continue;  // a number of stages that the family does not take
          SCOPED_TRACE(fmt::format("{} P={} m={} V={}", name, ranks, m, chunks));
          expect_sound(*program, {});
          // One slot a link: whatever more it takes is what the program needs.
          expect_sound(*program, {1, 1});
          expect_sound(*program, {1, 1, Posting::InQueueOrder});
          if (why_not_post_validated(*program).empty())
            expect_sound(*program, {1, 1, Posting::Early, StepRule::PostValidated});
        }
      }
    }
  }
}

TEST(Agreement, random_valid_programs_are_accepted_and_run) {
  // Placements, replicas, split backwards, pairs, several updates and forward-only programs that no family
  // makes yet.
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    const ComputeProgram program = judging::random_program(random);
    const Posting posting = draw(random, 2) == 0 ? Posting::Early : Posting::InQueueOrder;
    expect_sound(program, {1 + draw(random, 4), 1 + draw(random, 3), posting});
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Agreement, random_programs_with_post_validated_steps_are_accepted_and_run) {
  for (uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    const ComputeProgram program = judging::random_flat_program(random);
    expect_sound(program,
                 {1 + draw(random, 3), 1 + draw(random, 2), Posting::Early, StepRule::PostValidated});
    if (testing::Test::HasFatalFailure()) return;
  }
}

// The instruction that `at` could stand beside at worst: the wait for
// its receive, or the send that it waits for.
size_t partner_of(const std::vector<Instruction>& list, size_t at) {
  const bool is_post = list[at].kind == InstructionKind::PostReceive;
  const InstructionKind wanted = is_post ? InstructionKind::WaitReceive : InstructionKind::Send;
  for (size_t i = 0; i < list.size(); ++i) {
    const bool is_same =
        list[i].work == list[at].work && list[i].flow == list[at].flow && list[i].peer == list[at].peer;
    if (list[i].kind == wanted && is_same) return is_post ? i - 1 : i + 1;
  }
  return at;
}

// Posts receives as late and waits for sends as early as the rules of its own rank allow, with some
// probability: only the other ranks can be hurt by that.
void delay_progress(RankProgram& rank, Random& random) {
  for (size_t at = rank.instructions.size(); at-- > 0;) {
    const InstructionKind kind = rank.instructions[at].kind;
    if (kind != InstructionKind::PostReceive && kind != InstructionKind::WaitSend) continue;
    if (draw(random, 3) == 0) continue;
    RankProgram moved = rank;
    const size_t to = partner_of(rank.instructions, at);
    const Instruction instruction = rank.instructions[at];
    moved.instructions.erase(moved.instructions.begin() + static_cast<ptrdiff_t>(at));
    moved.instructions.insert(moved.instructions.begin() + static_cast<ptrdiff_t>(to), instruction);
    if (verify(moved).valid()) rank = std::move(moved);
  }
}

TEST(Agreement, verifier_and_checker_agree_on_deadlocks_of_lowered_programs) {
  int valid = 0, deadlocks = 0, queued = 0;
  for (uint64_t seed = 0; seed < 700; ++seed) {
    Random random(seed);
    const Posting posting = draw(random, 2) == 0 ? Posting::Early : Posting::InQueueOrder;
    const int receive_slots = 1 + draw(random, 3), send_slots = 1 + draw(random, 2);
    LoweredProgram program =
        seed % 7 < 5 ? *lower(judging::random_program(random), {receive_slots, send_slots, posting})
                     : *lower(judging::random_flat_program(random),
                              {receive_slots, send_slots, Posting::Early, StepRule::PostValidated});
    for (RankProgram& rank : program.ranks) delay_progress(rank, random);
    const Verdict verdict = verify(program);
    const Checked checked = check(program);
    ASSERT_EQ(checked.why, "") << "seed " << seed;
    ASSERT_EQ(verdict.holds.buffered, checked.buffered) << "seed " << seed;
    ASSERT_EQ(verdict.holds.rendezvous, checked.rendezvous) << "seed " << seed;
    ASSERT_EQ(verdict.holds.in_order_queue, checked.in_order_queue) << "seed " << seed;
    ASSERT_EQ(verdict.valid(), checked.rendezvous) << "seed " << seed << first_violation(verdict);
    for (const Violation& violation : verdict.violations) EXPECT_EQ(violation.rule, "deadlock");
    EXPECT_EQ(verify(program, {.in_order_queue = true}).valid(), checked.in_order_queue);
    ++(verdict.valid() ? valid : deadlocks);
    queued += verdict.holds.in_order_queue ? 1 : 0;
  }
  EXPECT_GT(valid, 50);
  EXPECT_GT(deadlocks, 10);
  EXPECT_GT(queued, 50);
}

}  // namespace
}  // namespace penstock::plan
