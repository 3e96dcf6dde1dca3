// Every family at every small shape: valid, lowered, valid again, and played to its end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/simulation/simulate.h"
#include "plan/verification/verify.h"

namespace penstock::plan {
namespace {

std::string first_violation(const Verdict& verdict) {
  return verdict.valid() ? "" : verdict.violations.front().to_string();
}

bool takes_even_ranks_only(const std::string& name) {
  return name == "dualpipe" || name == "chimera";
}

std::vector<int> stages_per_rank_of(const std::string& name) {
  if (name == "interleaved-1f1b" || name.starts_with("looped-bfs")) return {1, 2, 3, 4};
  return {0};
}

void expect_valid(const ScheduleRequest& request) {
  SCOPED_TRACE(fmt::format("{} P={} m={} V={} updates={}", request.name, request.ranks, request.microbatches,
                           request.stages_per_rank, request.updates));
  const StatusOr<ComputeProgram> program = generate(request);
  ASSERT_TRUE(program.ok()) << program.status();
  ASSERT_EQ(program->ranks, request.ranks);
  ASSERT_EQ(program->microbatches, request.microbatches);
  ASSERT_EQ(program->updates, request.updates);
  ASSERT_EQ(first_violation(verify(*program)), "");
  const StatusOr<LoweredProgram> lowered = lower(*program);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  ASSERT_EQ(first_violation(verify(*lowered)), "");
  const StatusOr<Simulation> played = simulate(*program, uniform_costs(program->stages(), {1, 2, 1}));
  ASSERT_TRUE(played.ok()) << played.status();
}

TEST(FamiliesSweep, every_family_is_valid_at_every_shape) {
  for (const std::string& name : schedule_names()) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      if (takes_even_ranks_only(name) && ranks % 2 != 0) continue;
      for (int m = 1; m <= 20; ++m) {
        for (const int stages_per_rank : stages_per_rank_of(name))
          expect_valid({name, ranks, m, stages_per_rank});
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(FamiliesSweep, every_family_is_valid_over_several_updates) {
  for (const std::string& name : schedule_names()) {
    for (int ranks = 1; ranks <= 6; ++ranks) {
      if (takes_even_ranks_only(name) && ranks % 2 != 0) continue;
      for (const int m : {1, 2, 3, 7}) {
        for (const int updates : {2, 3, 9})
          expect_valid({.name = name, .ranks = ranks, .microbatches = m, .updates = updates});
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(FamiliesSweep, extra_warm_up_forwards_keep_the_program_valid) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (const int m : {1, 3, 8, 17}) {
      for (const int extra : {1, 2, 2 * ranks}) {
        expect_valid(
            {.name = "1f1b-v", .ranks = ranks, .microbatches = m, .extra_warm_up_forwards = {extra}});
        std::vector<int> of_rank(ranks, 0);
        of_rank[m % ranks] = extra;
        expect_valid(
            {.name = "1f1b-v", .ranks = ranks, .microbatches = m, .extra_warm_up_forwards = of_rank});
      }
    }
  }
}

// What `rank` sends, as "0 activation".
std::set<std::string> sent_by(const RankProgram& rank) {
  std::set<std::string> sent;
  for (const Instruction& instruction : rank.instructions) {
    if (instruction.kind != InstructionKind::Send) continue;
    const char* flow = instruction.flow == Flow::Activation ? "activation" : "gradient";
    sent.insert(fmt::format("{} {}", instruction.work.stage.value, flow));
  }
  return sent;
}

TEST(FamiliesSweep, two_ranks_tell_messages_of_different_stages_apart) {
  // With P=2 the next rank is also the one before: whoever knows a message by its direction mixes them up, and
  // hangs or trains on the wrong tensor. Here a message is known by its stage, microbatch and flow.
  LoweredProgram program = *lower(*generate({"interleaved-1f1b", 2, 4, 2}));
  EXPECT_THAT(sent_by(program.ranks[0]), testing::ElementsAre("0 activation", "2 activation", "2 gradient"));
  EXPECT_THAT(sent_by(program.ranks[1]), testing::ElementsAre("1 activation", "1 gradient", "3 gradient"));
  ASSERT_TRUE(verify(program).valid());
  for (Instruction& instruction : program.ranks[0].instructions) {
    const bool is_gradient = instruction.kind == InstructionKind::Send && instruction.flow == Flow::Gradient;
    if (!is_gradient) continue;
    instruction.flow = Flow::Activation;
    break;
  }
  EXPECT_FALSE(verify(program).valid());
}

TEST(FamiliesSweep, programs_of_a_large_cluster_are_made) {
  // A generator whose cost grows faster than its program would take minutes.
  for (const std::string& name : schedule_names()) {
    for (const auto& [ranks, m] : {std::pair(64, 512), std::pair(512, 4)}) {
      const StatusOr<ComputeProgram> program = generate({.name = name, .ranks = ranks, .microbatches = m});
      ASSERT_TRUE(program.ok()) << program.status();
      ASSERT_EQ(first_violation(verify(*program)), "") << name;
    }
  }
}

}  // namespace
}  // namespace penstock::plan
