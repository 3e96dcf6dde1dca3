#include "plan/verification/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string first(const Verdict& verdict) {
  return verdict.valid() ? "valid" : verdict.violations.front().to_string();
}

ComputeProgram with_actions(int ranks, int microbatches, const std::vector<std::vector<std::string>>& texts) {
  ComputeProgram program;
  program.schedule = "file:test";
  program.ranks = ranks;
  program.microbatches = microbatches;
  program.placement = loop_placement(ranks, 1);
  for (const auto& of_rank : texts) {
    auto& actions = program.actions.emplace_back();
    for (const std::string& text : of_rank) actions.push_back(*parse_action(text));
  }
  return program;
}

// --- compute programs

TEST(VerifyCompute, valid_program_reports_high_water_and_bit_identity) {
  const Verdict verdict = verify(*generate({"interleaved-1f1b", 4, 8, 2}));
  EXPECT_EQ(first(verdict), "valid");
  EXPECT_TRUE(verdict.bit_identical);
  EXPECT_THAT(verdict.high_water, testing::ElementsAre(8, 8, 7, 5, 4, 4, 3, 1));
}

TEST(VerifyCompute, backwards_out_of_microbatch_order_are_valid_and_not_bit_identical) {
  const Verdict verdict = verify(with_actions(1, 2, {{"0F0", "0F1", "0B1", "0B0"}}));
  EXPECT_EQ(first(verdict), "valid");
  EXPECT_FALSE(verdict.bit_identical);
}

TEST(VerifyCompute, losses_out_of_microbatch_order_are_valid_and_not_bit_identical) {
  // The head adds to its weight gradient in its forward.
  const ComputeProgram program = with_actions(1, 2, {{"0F1", "0F0", "0B0", "0B1"}});
  const Verdict verdict = verify(program);
  EXPECT_EQ(first(verdict), "valid");
  EXPECT_FALSE(verdict.bit_identical);
  const LoweredProgram lowered = *lower(program);
  EXPECT_FALSE(verify(lowered).bit_identical);
  EXPECT_FALSE(verify(lowered.ranks.front()).bit_identical);
}

TEST(VerifyCompute, two_swapped_actions_are_named_with_rank_position_and_rule) {
  ComputeProgram program = *generate({"1f1b", 4, 8, 1});
  std::swap(program.actions[3][0], program.actions[3][1]);
  const Verdict verdict = verify(program);
  ASSERT_FALSE(verdict.valid());
  const Violation& violation = verdict.violations.front();
  EXPECT_EQ(violation.rule, "order");
  EXPECT_EQ(violation.rank, RankIndex(3));
  EXPECT_EQ(violation.position, 0);
  EXPECT_EQ(violation.action, "3B0");
  EXPECT_EQ(violation.to_string(),
            "order: rank 3 position 0 3B0: needs 3F0 first, which stands at position 1");
}

TEST(VerifyCompute, ranks_that_wait_in_a_circle_are_described_by_their_actions) {
  // Rank 0 wants a gradient before it sends the activation that the gradient comes from.
  ComputeProgram program = with_actions(2, 2, {{"0F0", "0B0", "0F1", "0B1"}, {"1F0", "1F1", "1B0", "1B1"}});
  EXPECT_EQ(
      first(verify(program)),
      "deadlock: rank 0 position 1 0B0: nobody can go on: rank 0 stands before 0B0 at position 1 and waits "
      "for 1B0 of "
      "rank 1 (position 2); rank 1 stands before 1F1 at position 1 and waits for 0F1 of rank 0 (position 2)");
}

TEST(VerifyCompute, circle_of_many_ranks_is_cut_short) {
  ComputeProgram program = *generate({"interleaved-1f1b", 40, 2, 2});
  std::swap(program.actions[0][1], program.actions[0][3]);  // 40F1 before 0F1, all around the ring
  EXPECT_THAT(first(verify(program)), AllOf(HasSubstr("deadlock: rank 0 position 1 40F1: nobody can go on"),
                                            HasSubstr("and 32 ranks more in the circle")));
}

TEST(VerifyCompute, missing_and_double_work_is_named) {
  EXPECT_EQ(first(verify(with_actions(1, 2, {{"0F0", "0F1", "0B0"}}))),
            "complete: rank 0 0B1: is missing; every forward needs one B, or one I and one W");
  EXPECT_EQ(first(verify(with_actions(1, 1, {{"0F0", "0I0"}}))),
            "complete: rank 0 0W0: is missing; every forward needs one B, or one I and one W");
  EXPECT_EQ(first(verify(with_actions(1, 2, {{"0F0", "0B0"}}))),
            "complete: rank 0 0F1: is missing; expected 2 forwards in all, found 1");
  EXPECT_EQ(first(verify(with_actions(1, 1, {{"0F0", "0B0", "0I0", "0W0"}}))),
            "complete: rank 0 position 2 0I0: is there twice: 0B0 at position 1 does the same");
  EXPECT_EQ(first(verify(with_actions(1, 1, {{"0F0", "0F0", "0B0"}}))),
            "complete: rank 0 position 1 0F0: is there twice: 0F0 at position 0 does the same");
}

TEST(VerifyCompute, work_on_a_rank_that_does_not_hold_its_stage_is_named) {
  EXPECT_EQ(first(verify(with_actions(2, 1, {{"0F0", "1F0", "1B0", "0B0"}, {}}))),
            "ownership: rank 0 position 1 1F0: stage 1 runs microbatch 0 on rank 1, found it on rank 0");
}

TEST(VerifyCompute, weight_gradient_before_input_gradient_is_out_of_order) {
  EXPECT_THAT(first(verify(with_actions(1, 1, {{"0F0", "0W0", "0I0"}}))),
              HasSubstr("order: rank 0 position 1 0W0: needs 0I0 first"));
  EXPECT_EQ(first(verify(with_actions(1, 1, {{"0F0", "0I0", "0W0"}}))), "valid");
}

TEST(VerifyCompute, halves_of_a_pair_may_not_need_each_other) {
  EXPECT_EQ(first(verify(with_actions(1, 2, {{"0F0", "O(0F1;0B0)", "0B1"}}))), "valid");
  EXPECT_EQ(first(verify(with_actions(1, 1, {{"O(0F0;0B0)"}}))),
            "order: rank 0 position 0 0B0: needs 0F0, which runs in the same pair");
  // Through another rank: 0F1 is there only after the pair, and 1B1, which the pair needs, after 0F1.
  EXPECT_THAT(first(verify(with_actions(2, 2, {{"0F0", "O(0F1;0B1)", "0B0"}, {"1F0", "1F1", "1B1", "1B0"}}))),
              HasSubstr("order"));
}

TEST(VerifyCompute, forward_only_program_has_no_backward) {
  ComputeProgram program = with_actions(2, 2, {{"0F0", "0F1"}, {"1F0", "1F1"}});
  EXPECT_THAT(first(verify(program)), HasSubstr("complete"));
  program.forward_only = true;
  EXPECT_EQ(first(verify(program)), "valid");
  program.actions[0].push_back(*parse_action("0B0"));
  EXPECT_EQ(first(verify(program)),
            "complete: rank 0 position 2 0B0: a forward-only program has no backward");
}

TEST(VerifyCompute, staleness_rule_decides_which_weights_must_exist) {
  ComputeProgram program = with_actions(1, 1, {{"0F0", "0F1", "0B0", "0B1"}});
  program.updates = 2;
  EXPECT_EQ(first(verify(program)),
            "numerics: rank 0 position 1 0F1: belongs to update 1, but the rank stands after 0 optimizer "
            "steps: its weights of version 1 do not exist");
  program.version_rule = WeightVersionRule::DoubleBuffered;
  EXPECT_EQ(first(verify(program)), "valid");
  program.version_rule = WeightVersionRule::Stashed;
  EXPECT_EQ(first(verify(program)), "valid");
  program = with_actions(1, 1, {{"0F0", "0F1", "0F2", "0B0", "0B1", "0B2"}});
  program.updates = 3;
  program.version_rule = WeightVersionRule::DoubleBuffered;
  EXPECT_THAT(first(verify(program)), HasSubstr("numerics: rank 0 position 2 0F2: belongs to update 2"));
}

TEST(VerifyCompute, replica_runs_the_microbatches_that_are_routed_to_it) {
  ComputeProgram program = with_actions(2, 2, {{"0F0", "1F1", "1B1", "0B0"}, {"0F1", "1F0", "1B0", "0B1"}});
  program.placement = {{RankIndex(0), RankIndex(1)}, {RankIndex(1), RankIndex(0)}};
  program.replica_of = {0, 1};
  const Verdict verdict = verify(program);
  EXPECT_EQ(first(verdict), "valid");
  EXPECT_FALSE(verdict.bit_identical);
  program.replica_of = {1, 0};
  EXPECT_THAT(first(verify(program)),
              HasSubstr("ownership: rank 0 position 0 0F0: stage 0 runs microbatch 0 on rank 1"));
}

TEST(VerifyCompute, any_numbers_in_a_file_get_a_verdict) {
  // A file may say anything; it must not crash, hang, or ask for memory that it did not bring along.
  const ComputeProgram good = *generate({"1f1b", 2, 2, 1});
  std::vector<std::function<void(ComputeProgram&)>> attacks;
  for (const int value : {-1, 0, INT32_MIN, INT32_MAX, 1 << 24, 65'537}) {
    attacks.push_back([=](ComputeProgram& p) { p.ranks = value; });
    attacks.push_back([=](ComputeProgram& p) { p.microbatches = value; });
    attacks.push_back([=](ComputeProgram& p) { p.updates = value; });
    attacks.push_back([=](ComputeProgram& p) { p.microbatches = p.updates = value; });
    attacks.push_back([=](ComputeProgram& p) { p.stages_per_rank = value; });
    attacks.push_back([=](ComputeProgram& p) { p.placement[1][0] = RankIndex(value == 0 ? 7 : value); });
    attacks.push_back([=](ComputeProgram& p) { p.replica_of = {value == 0 ? 7 : value, 0}; });
    attacks.push_back([=](ComputeProgram& p) { p.actions[1][1].work.stage = StageIndex(value); });
    attacks.push_back([=](ComputeProgram& p) {
      p.actions[1][1].work.microbatch = MicrobatchIndex(value == 0 ? 9 : value);
    });
    attacks.push_back(
        [=](ComputeProgram& p) { p.actions[1][1].work.kind = static_cast<ActionKind>(200 + value % 8); });
    attacks.push_back([=](ComputeProgram& p) {
      p.actions[1][1].overlapped = Work{StageIndex(value), ActionKind::Backward, MicrobatchIndex(value)};
    });
  }
  attacks.push_back([](ComputeProgram& p) { p = ComputeProgram{}; });
  attacks.push_back([](ComputeProgram& p) { p.actions.clear(); });
  attacks.push_back([](ComputeProgram& p) { p.actions = {{}, {}}; });
  attacks.push_back([](ComputeProgram& p) { p.placement.clear(); });
  attacks.push_back([](ComputeProgram& p) { p.placement = {{}, {}}; });
  attacks.push_back([](ComputeProgram& p) { p.placement[1] = {RankIndex(1), RankIndex(1)}; });
  attacks.push_back([](ComputeProgram& p) { p.placement[1] = {RankIndex(0)}; });
  attacks.push_back([](ComputeProgram& p) { p.replica_of = {0}; });
  for (size_t i = 0; i < attacks.size(); ++i) {
    ComputeProgram program = good;
    attacks[i](program);
    const Verdict verdict = verify(program);
    EXPECT_TRUE(!verdict.valid() || program.actions == good.actions) << "attack " << i;
    EXPECT_FALSE(verdict.valid() && program.microbatches != good.microbatches) << "attack " << i;
    EXPECT_LE(verdict.violations.size(), 20u);
  }
}

TEST(VerifyCompute, at_most_twenty_violations_are_told) {
  ComputeProgram program = *generate({"gpipe", 2, 100, 1});
  std::swap(program.actions[0], program.actions[1]);
  EXPECT_EQ(verify(program).violations.size(), 20u);
}

// --- lowered programs

LoweredProgram lowered(const std::string& name, int ranks, int microbatches, int stages_per_rank) {
  return *lower(*generate({name, ranks, microbatches, stages_per_rank}));
}

size_t find(const RankProgram& rank, const std::string& text) {
  for (size_t i = 0; i < rank.instructions.size(); ++i) {
    if (to_string(rank.instructions[i]) == text) return i;
  }
  throw std::runtime_error("no instruction '" + text + "'");
}

Instruction& at(RankProgram& rank, const std::string& text) {
  return rank.instructions[find(rank, text)];
}
void erase(RankProgram& rank, const std::string& text) {
  rank.instructions.erase(rank.instructions.begin() + static_cast<ptrdiff_t>(find(rank, text)));
}

// The first violation after `change` of rank 1 of 1f1b on two ranks with three microbatches.
std::string after(const std::function<void(RankProgram&)>& change) {
  LoweredProgram program = lowered("1f1b", 2, 3, 1);
  change(program.ranks[1]);
  const std::string alone = first(verify(program.ranks[1]));
  const std::string together = first(verify(program));
  EXPECT_TRUE(alone == together || alone == "valid") << alone << "\n" << together;
  return together;
}

TEST(VerifyLowered, lowering_of_a_family_is_valid_for_each_rank_and_together) {
  const LoweredProgram program = lowered("interleaved-1f1b", 4, 8, 2);
  const Verdict verdict = verify(program);
  EXPECT_EQ(first(verdict), "valid");
  EXPECT_TRUE(verdict.bit_identical);
  EXPECT_THAT(verdict.high_water, testing::ElementsAre(8, 8, 7, 5, 4, 4, 3, 1));
  EXPECT_THAT(verify(program.ranks[1]).high_water, testing::ElementsAre(8, 4));  // its own stages, 1 and 5
}

TEST(VerifyLowered, lease_rules_are_memory_violations) {
  EXPECT_THAT(after([](RankProgram& r) { r.buffers[0].activation_slots = 0; }),
              HasSubstr("memory: rank 1 position 3"));
  EXPECT_THAT(after([](RankProgram& r) { erase(r, "acquire stage 1 microbatch 1 slot 0"); }),
              HasSubstr("1F1: the microbatch holds no activation slot"));
  EXPECT_THAT(after([](RankProgram& r) { erase(r, "release stage 1 microbatch 0 slot 0"); }),
              HasSubstr("the activation slot is held by another"));
  EXPECT_THAT(after([](RankProgram& r) { erase(r, "release stage 1 microbatch 2 slot 0"); }),
              HasSubstr("its activation slot 0 is never released"));
  EXPECT_THAT(after([](RankProgram& r) {
                std::swap(at(r, "compute 1B0 version 0"), at(r, "release stage 1 microbatch 0 slot 0"));
              }),
              HasSubstr("expected after the end of its backward"));
}

TEST(VerifyLowered, slots_for_another_form_of_the_backward_are_a_memory_violation) {
  // A slot without room for what W reads of its I would be written past its end.
  EXPECT_THAT(after([](RankProgram& r) { r.buffers[0].backward = BackwardForm::Split; }),
              HasSubstr("memory: rank 1: the activation slots of stage 1 are for split backwards, the "
                        "instructions have whole backwards only"));
  LoweredProgram split = lowered("zb-h1", 2, 3, 1);
  EXPECT_EQ(first(verify(split)), "valid");
  split.ranks[0].buffers[0].backward = BackwardForm::Fused;
  EXPECT_THAT(first(verify(split.ranks[0])), HasSubstr("are for whole backwards only"));
}

TEST(VerifyLowered, replicas_that_do_not_name_each_other_are_an_ownership_violation) {
  const LoweredProgram good = lowered("chimera", 2, 4, 1);
  ASSERT_EQ(first(verify(good)), "valid");
  EXPECT_EQ(good.ranks[0].buffers[1].twin, RankIndex(1));
  EXPECT_EQ(good.ranks[0].buffers[1].replica, 1);  // stage 1 is on ranks 1 and 0
  const auto refused = [&](auto change) {
    LoweredProgram program = good;
    change(program.ranks[1].buffers[1]);
    return first(verify(program));
  };
  const char* of_both = "ownership: rank 0: stage 1 is on 2 ranks; expected one, or two that name each other";
  EXPECT_THAT(refused([](StageBuffers& b) { b.replica = 1; }), HasSubstr(of_both));
  EXPECT_THAT(refused([](StageBuffers& b) { b.twin = RankIndex(); }), HasSubstr(of_both));
  const char* of_one = "ownership: rank 1: stage 1 is replica ";
  EXPECT_THAT(refused([](StageBuffers& b) { b.replica = 2; }), HasSubstr(of_one));
  EXPECT_THAT(refused([](StageBuffers& b) { b.twin = RankIndex(1); }), HasSubstr(of_one));
  EXPECT_THAT(refused([](StageBuffers& b) { b.twin = RankIndex(2); }), HasSubstr(of_one));
}

TEST(VerifyLowered, transfer_rules_name_the_instruction) {
  EXPECT_THAT(after([](RankProgram& r) {
                erase(r, "wait receive of activation of stage 1 microbatch 0 from rank 0 slot 0");
              }),
              HasSubstr("order: rank 1 position 4 1F0: its activation from stage 0 has not arrived"));
  EXPECT_THAT(
      after([](RankProgram& r) { erase(r, "send gradient of stage 1 microbatch 0 to rank 0 slot 0"); }),
      HasSubstr("before the gradient of stage 1 microbatch 0 is sent or handed to stage 0"));
  EXPECT_THAT(after([](RankProgram& r) {
                erase(r, "wait send of gradient of stage 1 microbatch 0 to rank 0 slot 0");
              }),
              HasSubstr("the send slot still holds stage 1 microbatch 0"));
  EXPECT_THAT(after([](RankProgram& r) {
                erase(r, "wait send of gradient of stage 1 microbatch 2 to rank 0 slot 0");
              }),
              HasSubstr("optimizer step 0: stands before a wait for the send of stage 1 microbatch 2"));
  EXPECT_THAT(after([](RankProgram& r) {
                at(r, "send gradient of stage 1 microbatch 1 to rank 0 slot 1").peer = RankIndex(5);
              }),
              HasSubstr("no link of this rank leads there"));
  EXPECT_THAT(after([](RankProgram& r) { r.links[0].digest ^= 1; }),
              HasSubstr("transfers: rank 1: link 0 to 1 says 3 messages"));
}

TEST(VerifyLowered, numerics_rules_hold_reduction_step_and_versions_to_their_place) {
  EXPECT_THAT(after([](RankProgram& r) { erase(r, "reduce gradients of stage 1 update 0"); }),
              HasSubstr("the gradients of stage 1 are not reduced"));
  EXPECT_THAT(after([](RankProgram& r) { erase(r, "optimizer step 0"); }),
              HasSubstr("numerics: rank 1: expected 1 optimizer steps, found 0"));
  EXPECT_THAT(after([](RankProgram& r) { at(r, "compute 1B1 version 0").weight_version = 1; }),
              HasSubstr("no staleness rule does"));
  EXPECT_THAT(after([](RankProgram& r) {
                const Instruction early = at(r, "reduce gradients of stage 1 update 0");
                erase(r, to_string(early));
                r.instructions.insert(r.instructions.begin(), early);
              }),
              HasSubstr("1B0: the gradients of update 0 are reduced before it"));
  EXPECT_THAT(after([](RankProgram& r) {
                std::swap(at(r, "reduce gradients of stage 1 update 0"), at(r, "compute 1B2 version 0"));
              }),
              HasSubstr("expected after the stage's last backward, 1 of the update are open"));
}

TEST(VerifyLowered, receives_in_another_order_than_the_sends_are_named) {
  LoweredProgram program = lowered("1f1b", 2, 3, 1);
  RankProgram& rank = program.ranks[1];
  std::swap(rank.instructions[0].work, rank.instructions[1].work);
  std::swap(at(rank, "wait receive of activation of stage 1 microbatch 0 from rank 0 slot 0").slot,
            at(rank, "wait receive of activation of stage 1 microbatch 1 from rank 0 slot 1").slot);
  rank.links[0].digest = transfer_digest(rank, RankIndex(0), RankIndex(1));
  EXPECT_EQ(first(verify(rank)), "valid");  // the rank alone cannot know
  EXPECT_THAT(first(verify(program)),
              HasSubstr("is message 0 of link 0 to 1, where the source sends stage 0 microbatch 0"));
}

// Moves the instruction `text` right behind `before`.
void move_behind(RankProgram& rank, const std::string& before, const std::string& text) {
  const Instruction moved = at(rank, text);
  erase(rank, text);
  rank.instructions.insert(rank.instructions.begin() + static_cast<ptrdiff_t>(find(rank, before)) + 1, moved);
}

TEST(VerifyLowered, deadlock_under_rendezvous_sends_only_is_told_as_such) {
  // Each rank posts a receive only after it has seen its own send arrive: with a large message nobody goes
  // on, with a small one, which a library may buffer, nobody notices.
  LoweredProgram program = lowered("1f1b", 2, 2, 1);
  RankProgram& zero = program.ranks[0];
  RankProgram& one = program.ranks[1];
  move_behind(zero, "send activation of stage 0 microbatch 1 to rank 1 slot 1",
              "wait send of activation of stage 0 microbatch 1 to rank 1 slot 1");
  move_behind(zero, "wait send of activation of stage 0 microbatch 1 to rank 1 slot 1",
              "post receive of gradient of stage 0 microbatch 1 from rank 1 slot 1");
  move_behind(zero, "wait send of activation of stage 0 microbatch 1 to rank 1 slot 1",
              "post receive of gradient of stage 0 microbatch 0 from rank 1 slot 0");
  EXPECT_EQ(first(verify(program)), "valid");
  move_behind(one, "send gradient of stage 1 microbatch 0 to rank 0 slot 0",
              "wait send of gradient of stage 1 microbatch 0 to rank 0 slot 0");
  move_behind(one, "wait send of gradient of stage 1 microbatch 0 to rank 0 slot 0",
              "post receive of activation of stage 1 microbatch 1 from rank 0 slot 1");
  EXPECT_EQ(first(verify(one)), "valid");
  EXPECT_THAT(first(verify(program)),
              AllOf(HasSubstr("deadlock: rank 0"), HasSubstr("nobody can go on under rendezvous sends"),
                    HasSubstr("rank 0 stands before wait send of activation of stage 0 microbatch 1"),
                    HasSubstr("rank 1 stands before wait send of gradient of stage 1 microbatch 0")));
}

TEST(VerifyLowered, program_of_another_rank_or_shape_is_refused) {
  LoweredProgram program = lowered("1f1b", 2, 3, 1);
  std::swap(program.ranks[0], program.ranks[1]);
  EXPECT_THAT(first(verify(program)), HasSubstr("shape: rank 0: says rank 1 of 2"));
  EXPECT_THAT(first(verify(LoweredProgram{})), HasSubstr("shape"));
  program = lowered("1f1b", 2, 3, 1);
  program.bit_identical = true;
  EXPECT_EQ(first(verify(program)), "valid");
}

TEST(VerifyLowered, claim_of_bit_identity_that_is_not_so_is_refused) {
  LoweredProgram program = *lower(with_actions(1, 2, {{"0F0", "0F1", "0B1", "0B0"}}));
  EXPECT_EQ(first(verify(program)), "valid");
  program.bit_identical = true;
  EXPECT_THAT(first(verify(program)), HasSubstr("numerics: claims bit_identical"));
}

TEST(VerifyLowered, any_numbers_from_a_wire_get_a_verdict) {
  const RankProgram good = lowered("interleaved-1f1b", 2, 2, 2).ranks[0];
  ASSERT_EQ(first(verify(good)), "valid");
  for (const int value : {-1, INT32_MIN, INT32_MAX, 1 << 24, 65'537, 77}) {
    std::vector<std::function<void(RankProgram&)>> attacks = {
        [=](RankProgram& p) { p.rank = RankIndex(value); },
        [=](RankProgram& p) { p.ranks = value == 77 ? 0 : value; },
        // A rank alone cannot know how many stages and microbatches others
        // have: only that the numbers are possible.
        [=](RankProgram& p) { p.stages = value > 0 ? 0 : value; },
        [=](RankProgram& p) { p.microbatches = value > 0 ? 0 : value; },
        [=](RankProgram& p) { p.updates = value; },
        [=](RankProgram& p) { p.microbatches = p.updates = value; },
        [=](RankProgram& p) { p.buffers[0].stage = StageIndex(value); },
        [=](RankProgram& p) { p.buffers[1].activation_slots = value; },
        [=](RankProgram& p) { p.buffers[1].replica = value; },
        [=](RankProgram& p) { p.links[0].source = RankIndex(value); },
        [=](RankProgram& p) { p.links[0].messages = value; },
        [=](RankProgram& p) { p.links[0].receive_slots = value; },
        [=](RankProgram& p) { p.links[1].send_slots = value; },
        [](RankProgram& p) { p.buffers.clear(); },
        [](RankProgram& p) { p.links.clear(); },
        [](RankProgram& p) { p.instructions.clear(); },
        [](RankProgram& p) { p = RankProgram{}; },
        [](RankProgram& p) { p.forward_only = true; },
    };
    for (size_t i = 0; i < good.instructions.size(); ++i) {
      attacks.push_back(
          [=](RankProgram& p) { p.instructions[i].kind = static_cast<InstructionKind>(value); });
      attacks.push_back([=](RankProgram& p) { p.instructions[i].work.stage = StageIndex(value); });
      attacks.push_back([=](RankProgram& p) { p.instructions[i].work.microbatch = MicrobatchIndex(value); });
      attacks.push_back(
          [=](RankProgram& p) { p.instructions[i].work.kind = static_cast<ActionKind>(value); });
      attacks.push_back([=](RankProgram& p) { p.instructions[i].flow = static_cast<Flow>(value); });
      attacks.push_back([=](RankProgram& p) { p.instructions[i].peer = RankIndex(value); });
      attacks.push_back([=](RankProgram& p) { p.instructions[i].slot = value; });
      attacks.push_back([=](RankProgram& p) { p.instructions[i].update = value; });
      attacks.push_back([=](RankProgram& p) { p.instructions[i].weight_version = value; });
    }
    for (size_t i = 0; i < attacks.size(); ++i) {
      RankProgram program = good;
      attacks[i](program);
      const Verdict verdict = verify(program);
      EXPECT_LE(verdict.violations.size(), 20u);
      // A field that its kind of instruction does not use may be anything; whatever has a meaning may not.
      EXPECT_TRUE(i >= 18 || !verdict.valid()) << "attack " << i << " value " << value;
    }
  }
}

}  // namespace
}  // namespace penstock::plan
