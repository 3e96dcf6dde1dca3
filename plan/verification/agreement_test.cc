// The verifier, the lowering and two slow judges against each other, over many shapes and over random
// programs. Every failure prints the seed that repeats it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/verification/testing/random_programs.h"
#include "plan/verification/testing/slow_judge.h"
#include "plan/verification/verify.h"

namespace penstock::plan {
namespace {

using judging::draw;
using judging::judge;
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

void expect_sound(const ComputeProgram& program, const LoweringOptions& options, uint64_t seed) {
  const Verdict of_compute = verify(program);
  ASSERT_EQ(first_violation(of_compute), "") << print(program);
  ASSERT_EQ(judge(program), "") << print(program);
  const StatusOr<LoweredProgram> lowered = lower(program, options);
  ASSERT_TRUE(lowered.ok()) << lowered.status() << "\n" << print(program);
  const Verdict verdict = verify(*lowered);
  EXPECT_EQ(first_violation(verdict), "") << print(program);
  EXPECT_EQ(verdict.high_water, of_compute.high_water);
  EXPECT_EQ(verdict.bit_identical, of_compute.bit_identical);
  for (const bool rendezvous : {true, false}) {
    EXPECT_EQ(judge(*lowered, rendezvous, seed), "") << "rendezvous " << rendezvous << "\n" << print(program);
  }
  for (const RankProgram& rank : lowered->ranks) {
    EXPECT_EQ(first_violation(verify(rank)), "");
    for (const StageBuffers& buffers : rank.buffers) {
      const int high_water = verdict.high_water[buffers.stage.value];
      EXPECT_LE(buffers.activation_slots, high_water);
      EXPECT_TRUE(program.has_replicas() || buffers.activation_slots == high_water);
    }
  }
}

TEST(Agreement, every_family_and_shape_is_valid_and_runs_under_both_kinds_of_send) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (int m = 1; m <= 14; ++m) {
      for (const char* name : {"naive", "gpipe", "1f1b"}) expect_sound(*generate({name, ranks, m, 1}), {}, m);
      for (int chunks = 1; chunks <= 3; ++chunks) {
        expect_sound(*generate({"interleaved-1f1b", ranks, m, chunks}), {}, m);
        // One slot a link: whatever more it takes is what the program needs.
        expect_sound(*generate({"interleaved-1f1b", ranks, m, chunks}), {1, 1}, m);
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
    expect_sound(program, {1 + draw(random, 4), 1 + draw(random, 3)}, seed);
    if (testing::Test::HasFatalFailure()) return;
  }
}

void mutate(ComputeProgram& program, Random& random) {
  const int rank = draw(random, program.ranks);
  auto& actions = program.actions[rank];
  if (actions.empty()) return;
  const int size = static_cast<int>(actions.size());
  const int at = draw(random, size);
  Work& work = actions[at].work;
  switch (draw(random, 9)) {
    case 0:
    case 1:
    case 2:
      return std::swap(actions[at], actions[draw(random, size)]);
    case 3:
      return std::swap(actions[at], actions[std::min(at + 1, size - 1)]);
    case 4:
      actions.erase(actions.begin() + at);
      return;
    case 5:
      actions.insert(actions.begin() + draw(random, size), Action(actions[at]));
      return;
    case 6:
      work.stage = StageIndex(draw(random, program.stages() + 2) - 1);
      return;
    case 7:
      work.microbatch = MicrobatchIndex(draw(random, program.total_microbatches() + 2) - 1);
      return;
    default:
      work.kind = static_cast<ActionKind>(draw(random, 4));
  }
}

TEST(Agreement, verifier_and_judge_agree_on_mutated_programs) {
  int valid = 0, invalid = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    ComputeProgram program =
        seed % 3 != 0
            ? judging::random_program(random)
            : *generate({"interleaved-1f1b", 1 + draw(random, 4), 1 + draw(random, 6), 1 + draw(random, 3)});
    for (int i = draw(random, 3); i >= 0; --i) mutate(program, random);
    const Verdict verdict = verify(program);
    const std::string judged = judge(program);
    ASSERT_EQ(verdict.valid(), judged.empty())
        << "seed " << seed << "\nverifier: " << first_violation(verdict) << "\njudge: " << judged << "\n"
        << print(program);
    ++(verdict.valid() ? valid : invalid);
  }
  // Both outcomes must occur, or the test shows nothing.
  EXPECT_GT(valid, 150);
  EXPECT_GT(invalid, 750);
}

void mutate(LoweredProgram& program, Random& random) {
  RankProgram& rank = program.ranks[draw(random, static_cast<int>(program.ranks.size()))];
  auto& list = rank.instructions;
  if (list.empty()) return;
  const int size = static_cast<int>(list.size());
  Instruction& at = list[draw(random, size)];
  switch (draw(random, 12)) {
    case 0:
    case 1:
      return std::swap(at, list[draw(random, size)]);
    case 2:
      return std::swap(at, *std::min(&at + 1, &list.back()));
    case 3:
      list.erase(list.begin() + (&at - list.data()));
      return;
    case 4:
      list.insert(list.begin() + draw(random, size), Instruction(at));
      return;
    case 5:
      at.slot = draw(random, 6) - 1;
      return;
    case 6:
      at.work.stage = StageIndex(draw(random, rank.stages + 2) - 1);
      return;
    case 7:
      at.work.microbatch = MicrobatchIndex(draw(random, rank.microbatches * rank.updates + 2) - 1);
      return;
    case 8:
      at.peer = RankIndex(draw(random, rank.ranks + 2) - 1);
      return;
    case 9:
      at.kind = static_cast<InstructionKind>(draw(random, 10));
      return;
    case 10:
      at.flow = static_cast<Flow>(draw(random, 2));
      return;
    default:
      at.overlaps_next = !at.overlaps_next;
  }
}

// As the lowering would describe the links of whatever the instructions are now.
void describe_links_again(LoweredProgram& program) {
  for (RankProgram& rank : program.ranks) {
    for (Link& link : rank.links) link.digest = transfer_digest(rank, link.source, link.target);
  }
}

TEST(Agreement, what_the_verifier_accepts_of_mutated_lowered_programs_runs) {
  int accepted = 0, refused = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    LoweredProgram program =
        *lower(judging::random_program(random), {1 + draw(random, 3), 1 + draw(random, 2)});
    mutate(program, random);
    describe_links_again(program);
    const Verdict verdict = verify(program);
    ++(verdict.valid() ? accepted : refused);
    if (!verdict.valid()) continue;
    for (const bool rendezvous : {true, false}) {
      ASSERT_EQ(judge(program, rendezvous, seed), "") << "seed " << seed << " rendezvous " << rendezvous;
    }
  }
  EXPECT_GT(accepted, 50);
  EXPECT_GT(refused, 500);
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

TEST(Agreement, verifier_and_judge_agree_on_deadlocks_of_lowered_programs) {
  int valid = 0, deadlocks = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    Random random(seed);
    LoweredProgram program =
        *lower(judging::random_program(random), {1 + draw(random, 3), 1 + draw(random, 2)});
    for (RankProgram& rank : program.ranks) delay_progress(rank, random);
    const Verdict verdict = verify(program);
    const std::string judged = judge(program, true, seed);
    ASSERT_EQ(verdict.valid(), judged.empty()) << "seed " << seed << "\n"
                                               << first_violation(verdict) << "\n"
                                               << judged;
    for (const Violation& violation : verdict.violations) EXPECT_EQ(violation.rule, "deadlock");
    ++(verdict.valid() ? valid : deadlocks);
  }
  EXPECT_GT(valid, 50);
  EXPECT_GT(deadlocks, 10);
}

}  // namespace
}  // namespace penstock::plan
