#include "plan/schedule/forward_only.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"

namespace penstock::plan {
namespace {

// Moves a token through the program: each rank runs its next forward when the one before it has run. Knows nothing of
// the order that forward_only promises.
bool can_be_played(const ComputeProgram& program) {
  std::vector<size_t> next(program.actions.size());
  std::set<std::pair<int, int>> done;  // (stage, microbatch)
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t rank = 0; rank < next.size(); ++rank) {
      while (next[rank] < program.actions[rank].size()) {
        const Work& work = program.actions[rank][next[rank]].work;
        const int stage = work.stage.value, microbatch = work.microbatch.value;
        if (stage > 0 && !done.contains({stage - 1, microbatch})) break;
        if (!done.insert({stage, microbatch}).second) return false;  // twice
        ++next[rank];
        moved = true;
      }
    }
  }
  return done.size() == static_cast<size_t>(program.stages()) * static_cast<size_t>(program.microbatches);
}

TEST(ForwardOnly, every_schedule_has_a_pass_of_any_number_of_microbatches) {
  // Validation must not ask of its microbatches what a schedule asks of the training's.
  for (const std::string& name : schedule_names()) {
    for (const int ranks : {1, 2, 4}) {
      const StatusOr<ComputeProgram> training =
          generate({.name = name, .ranks = ranks, .microbatches = 2 * ranks});
      if (!training.ok()) continue;  // a family that wants more ranks
      for (const int microbatches : {1, 3, 8}) {
        SCOPED_TRACE(fmt::format("{} P={} m={}", name, ranks, microbatches));
        const ComputeProgram pass = forward_only(*training, microbatches);
        EXPECT_TRUE(pass.forward_only);
        EXPECT_TRUE(can_be_played(pass));
        const StatusOr<LoweredProgram> lowered = lower(pass);
        ASSERT_TRUE(lowered.ok()) << lowered.status();
        for (const RankProgram& rank : lowered->ranks) {
          for (const StageBuffers& buffers : rank.buffers) EXPECT_EQ(buffers.activation_slots, 1);
          for (const Instruction& instruction : rank.instructions) {
            EXPECT_NE(instruction.kind, InstructionKind::OptimizerStep);
            EXPECT_NE(instruction.kind, InstructionKind::ReduceGradients);
          }
        }
      }
    }
  }
}

TEST(ForwardOnly, stages_stay_where_the_training_has_them) {
  const ComputeProgram training =
      generate({.name = "interleaved-1f1b", .ranks = 2, .microbatches = 4, .stages_per_rank = 2}).value();
  const ComputeProgram pass = forward_only(training, 2);
  EXPECT_EQ(pass.placement, training.placement);
  std::vector<std::string> first;
  for (const Action& action : pass.actions[0]) first.push_back(to_string(action));
  EXPECT_EQ(first, (std::vector<std::string>{"0F0", "0F1", "2F0", "2F1"}));
}

}  // namespace
}  // namespace penstock::plan
