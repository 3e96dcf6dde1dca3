// Programs whose steps are post-validated, with one piece of damage each; post_validation.h has the rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/verification/verify.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

std::string first(const Verdict& verdict) {
  return verdict.valid() ? "valid" : verdict.violations.front().to_string();
}

size_t find(const RankProgram& rank, const std::string& text) {
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    if (to_string(rank.instructions[i]) == text) return i;
  }
  throw std::runtime_error("no instruction '" + text + "'");
}

void erase(RankProgram& rank, const std::string& text) {
  rank.instructions.erase(rank.instructions.begin() + static_cast<ptrdiff_t>(find(rank, text)));
}

void move_behind(RankProgram& rank, const std::string& moved, const std::string& before) {
  const Instruction instruction = rank.instructions[find(rank, moved)];
  erase(rank, moved);
  rank.instructions.insert(rank.instructions.begin() + static_cast<ptrdiff_t>(find(rank, before)) + 1,
                           instruction);
}

// What verification says after `change` of one rank of 1f1b on three ranks with four microbatches; digests follow.
struct Judged {
  std::string alone;
  std::string together;
};
Judged judged_post_validated(int rank, const std::function<void(RankProgram&)>& change) {
  LoweredProgram program = *lower(*generate({"1f1b", 3, 4, 1}), {.step_rule = StepRule::PostValidated});
  RankProgram& changed = program.ranks[rank];
  change(changed);
  for (Link& link : changed.links) link.digest = transfer_digest(changed, link.source, link.target);
  return {first(verify(changed)), first(verify(program))};
}
TEST(VerifyPostValidated, what_adds_to_gradients_before_the_validation_is_refused_by_its_own_rank) {
  const Judged late = judged_post_validated(
      1, [](RankProgram& r) { move_behind(r, "validate the step before", "compute 1B0 version 0"); });
  EXPECT_THAT(late.alone, HasSubstr("before the gradient of stage 1 microbatch 0 is sent"));
  const Judged later = judged_post_validated(1, [](RankProgram& r) {
    move_behind(r, "validate the step before", "send gradient of stage 1 microbatch 0 to rank 0 slot 0");
  });
  EXPECT_THAT(later.alone, HasSubstr("numerics: rank 1"));
  EXPECT_THAT(later.alone, HasSubstr("behind computations that add to the gradients"));
  EXPECT_EQ(later.alone, later.together);
  // The forward of the head takes its weight gradient.
  const Judged head = judged_post_validated(
      2, [](RankProgram& r) { move_behind(r, "validate the step before", "compute 2F0 version 0"); });
  EXPECT_THAT(head.alone, HasSubstr("behind computations that add to the gradients"));
}

TEST(VerifyPostValidated, validation_is_once_on_every_rank_or_on_none) {
  const Judged missing =
      judged_post_validated(1, [](RankProgram& r) { erase(r, "validate the step before"); });
  EXPECT_THAT(missing.alone, HasSubstr("provisional messages, expected 0"));
  const Judged unlike = judged_post_validated(1, [](RankProgram& r) {
    erase(r, "validate the step before");
    for (Link& link : r.links) link.provisional_messages = 0;
  });
  EXPECT_EQ(unlike.alone, "valid");
  EXPECT_THAT(unlike.together, HasSubstr("transfers:"));
  const Judged twice = judged_post_validated(1, [](RankProgram& r) {
    const Instruction again = r.instructions[find(r, "validate the step before")];
    r.instructions.insert(r.instructions.begin(), again);
    for (Link& link : r.links) link.provisional_messages = link.target == RankIndex(1) ? 2 : 0;
  });
  EXPECT_THAT(twice.alone, HasSubstr("validated twice"));
}

TEST(VerifyPostValidated, messages_before_the_validation_are_what_the_links_say) {
  const Judged source = judged_post_validated(1, [](RankProgram& r) {
    for (Link& link : r.links) link.provisional_messages += link.target == RankIndex(2) ? 1 : 0;
  });
  EXPECT_THAT(source.alone, HasSubstr("says 3 provisional messages, expected 2"));
  // Three forwards of rank 0 come before; the target cannot see how many there were, its neighbour can.
  const Judged target = judged_post_validated(1, [](RankProgram& r) {
    for (Link& link : r.links) link.provisional_messages += link.source == RankIndex(0) ? 1 : 0;
  });
  EXPECT_EQ(target.alone, "valid");
  EXPECT_THAT(target.together, HasSubstr("3 provisional messages at its source, 4 at its target"));
  // A receive that its source does not fill before it hears of the step: nobody could drop it.
  const Judged early = judged_post_validated(1, [](RankProgram& r) {
    move_behind(r, "post receive of gradient of stage 1 microbatch 0 from rank 2 slot 0",
                "acquire stage 1 microbatch 0 slot 0");
  });
  EXPECT_THAT(early.alone, HasSubstr("says 0 provisional messages, expected at least 1"));
}

TEST(VerifyPostValidated, sender_that_hears_of_the_step_too_late_for_its_neighbour_is_a_deadlock) {
  // The last rank waits until rank 0 takes its first gradient, before it posts the receive of the second
  // activation; rank 0 posts the gradient's receive behind its validation, and before that it sends three.
  const auto judged = [](StepRule rule) {
    LoweredProgram program = *lower(*generate({"zb-h2", 2, 3, 1}), {1, 1, Posting::Early, rule});
    EXPECT_EQ(first(verify(program)), "valid");
    const std::string wait = "wait send of gradient of stage 1 microbatch 0 to rank 0 slot 0";
    move_behind(program.ranks[1], wait, "send gradient of stage 1 microbatch 0 to rank 0 slot 0");
    move_behind(program.ranks[1], "post receive of activation of stage 1 microbatch 1 from rank 0 slot 0",
                wait);
    return first(verify(program));
  };
  EXPECT_EQ(judged(StepRule::Barrier), "valid");
  EXPECT_THAT(judged(StepRule::PostValidated), HasSubstr("deadlock"));
}

}  // namespace
}  // namespace penstock::plan
