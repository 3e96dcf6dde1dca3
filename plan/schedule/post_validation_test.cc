#include "plan/schedule/post_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"

namespace penstock::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

LoweredProgram post_validated(const std::string& schedule, int ranks, int microbatches) {
  return *lower(*generate({schedule, ranks, microbatches, 1}), {.step_rule = StepRule::PostValidated});
}

std::vector<Instruction> before_validation(const RankProgram& program) {
  const auto& list = program.instructions;
  const auto place = std::find_if(list.begin(), list.end(), [](const Instruction& each) {
    return each.kind == InstructionKind::ValidateStep;
  });
  EXPECT_NE(place, list.end());
  return {list.begin(), place};
}

int count(const std::vector<Instruction>& list, InstructionKind kind, Flow flow = Flow::Activation) {
  return static_cast<int>(std::count_if(list.begin(), list.end(), [&](const Instruction& each) {
    return each.kind == kind && each.flow == flow;
  }));
}

// Forwards of each rank before its ValidateStep.
std::vector<int> forwards_before(const LoweredProgram& program) {
  std::vector<int> counts;
  for (const RankProgram& rank : program.ranks)
    counts.push_back(count(before_validation(rank), InstructionKind::Compute));
  return counts;
}

TEST(PostValidation, stands_behind_the_warm_up_and_on_the_last_rank_before_everything) {
  // The paper's warm-up counts; the head takes its weight gradient in its first forward.
  EXPECT_THAT(forwards_before(post_validated("zb-h2", 4, 8)), ElementsAre(7, 5, 3, 0));
  EXPECT_THAT(forwards_before(post_validated("zb-h1", 4, 8)), ElementsAre(4, 3, 2, 0));
  EXPECT_THAT(forwards_before(post_validated("1f1b", 4, 8)), ElementsAre(4, 3, 2, 0));
  EXPECT_THAT(forwards_before(post_validated("gpipe", 3, 5)), ElementsAre(5, 5, 0));
  EXPECT_THAT(forwards_before(post_validated("zb-h2", 4, 1)), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(forwards_before(post_validated("1f1b", 1, 3)), ElementsAre(0));
}

TEST(PostValidation, target_knows_what_its_source_has_sent_before_and_posts_no_more) {
  for (const char* schedule : {"zb-h2", "1f1b", "gpipe"}) {
    const LoweredProgram program = post_validated(schedule, 4, 8);
    const std::vector<int> forwards = forwards_before(program);
    for (const RankProgram& rank : program.ranks) {
      const std::vector<Instruction> before = before_validation(rank);
      EXPECT_EQ(count(before, InstructionKind::PostReceive, Flow::Gradient), 0);
      EXPECT_EQ(count(before, InstructionKind::Send, Flow::Gradient), 0);
      for (const Link& link : rank.links) {
        const bool carries_activations = link.source < link.target;
        EXPECT_EQ(link.provisional_messages, carries_activations ? forwards[link.source.value] : 0);
        if (!carries_activations || link.target != rank.rank) continue;
        EXPECT_LE(count(before, InstructionKind::PostReceive), link.provisional_messages);
      }
    }
  }
}

TEST(PostValidation, digest_of_a_link_knows_its_provisional_messages) {
  const RankProgram rank = post_validated("1f1b", 2, 3).ranks[1];
  RankProgram told_otherwise = rank;
  --told_otherwise.links[0].provisional_messages;
  ASSERT_EQ(rank.links[0].source, RankIndex(0));
  EXPECT_EQ(transfer_digest(rank, RankIndex(0), RankIndex(1)), rank.links[0].digest);
  EXPECT_NE(transfer_digest(told_otherwise, RankIndex(0), RankIndex(1)), rank.links[0].digest);
  // A rank with a barrier must not run beside it.
  const RankProgram barrier = lower(*generate({"1f1b", 2, 3, 1}))->ranks[0];
  EXPECT_FALSE(is_post_validated(barrier));
  EXPECT_NE(transfer_digest(barrier, RankIndex(1), RankIndex(0)), rank.links[1].digest);
}

TEST(PostValidation, programs_that_cannot_are_refused_with_the_reason) {
  const auto refusal = [](const ScheduleRequest& request) {
    const StatusOr<LoweredProgram> lowered =
        lower(*generate(request), {.step_rule = StepRule::PostValidated});
    EXPECT_EQ(lowered.status().code(), StatusCode::kInvalidArgument) << request.name;
    return message(lowered.status());
  };
  EXPECT_THAT(refusal({"interleaved-1f1b", 2, 4, 2}), HasSubstr("one stage a rank"));
  EXPECT_THAT(refusal({"zb-v", 2, 4, 2}), HasSubstr("one stage a rank"));
  EXPECT_THAT(refusal({"pipedream", 2, 4, 1}), HasSubstr("not synchronous"));
  EXPECT_THAT(refusal({"chimera", 4, 4, 1}), HasSubstr("two ranks"));
  const StatusOr<LoweredProgram> queued = lower(
      *generate({"1f1b", 2, 4, 1}), {.posting = Posting::InQueueOrder, .step_rule = StepRule::PostValidated});
  EXPECT_THAT(message(queued.status()), HasSubstr("not posted early"));
  ComputeProgram turned = *generate({"1f1b", 2, 4, 1});
  std::swap(turned.placement[0], turned.placement[1]);
  EXPECT_THAT(why_not_post_validated(turned), HasSubstr("order of the ranks"));
}

}  // namespace
}  // namespace penstock::plan
