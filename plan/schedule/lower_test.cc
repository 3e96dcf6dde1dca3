#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/schedule/dataflow.h"
#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"

namespace penstock::plan {
namespace {

using testing::ElementsAre;

std::vector<std::string> lines(const RankProgram& program) {
  std::vector<std::string> text;
  for (const Instruction& instruction : program.instructions) text.push_back(to_string(instruction));
  return text;
}

std::vector<Action> actions(const std::vector<std::string>& texts) {
  std::vector<Action> parsed;
  for (const std::string& text : texts) parsed.push_back(*parse_action(text));
  return parsed;
}

ComputeProgram one_rank(int microbatches, const std::vector<std::string>& texts) {
  ComputeProgram program;
  program.ranks = 1;
  program.microbatches = microbatches;
  program.placement = loop_placement(1, 1);
  program.actions = {actions(texts)};
  return program;
}

std::vector<int> versions(const RankProgram& program) {
  std::vector<int> of_computations;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.kind == InstructionKind::Compute) of_computations.push_back(instruction.weight_version);
  }
  return of_computations;
}

TEST(Lower, one_f_one_b_on_two_ranks_reads_like_the_specification) {
  const LoweredProgram program = *lower(*generate({"1f1b", 2, 3, 1}));
  EXPECT_THAT(
      lines(program.ranks[1]),
      ElementsAre(
          "post receive of activation of stage 1 microbatch 0 from rank 0 slot 0",
          "post receive of activation of stage 1 microbatch 1 from rank 0 slot 1",
          "post receive of activation of stage 1 microbatch 2 from rank 0 slot 2",
          "acquire stage 1 microbatch 0 slot 0",
          "wait receive of activation of stage 1 microbatch 0 from rank 0 slot 0", "compute 1F0 version 0",
          "compute 1B0 version 0", "send gradient of stage 1 microbatch 0 to rank 0 slot 0",
          "release stage 1 microbatch 0 slot 0", "acquire stage 1 microbatch 1 slot 0",
          "wait receive of activation of stage 1 microbatch 1 from rank 0 slot 1", "compute 1F1 version 0",
          "compute 1B1 version 0", "send gradient of stage 1 microbatch 1 to rank 0 slot 1",
          "release stage 1 microbatch 1 slot 0", "acquire stage 1 microbatch 2 slot 0",
          "wait receive of activation of stage 1 microbatch 2 from rank 0 slot 2", "compute 1F2 version 0",
          "wait send of gradient of stage 1 microbatch 0 to rank 0 slot 0", "compute 1B2 version 0",
          "send gradient of stage 1 microbatch 2 to rank 0 slot 0", "release stage 1 microbatch 2 slot 0",
          "reduce gradients of stage 1 update 0",
          "wait send of gradient of stage 1 microbatch 1 to rank 0 slot 1",
          "wait send of gradient of stage 1 microbatch 2 to rank 0 slot 0", "optimizer step 0"));
  EXPECT_TRUE(program.bit_identical);
}

TEST(Lower, receive_is_posted_again_as_soon_as_its_slot_is_free) {
  const LoweredProgram program = *lower(*generate({"gpipe", 2, 3, 1}), {1, 1});
  const std::vector<std::string> text = lines(program.ranks[1]);
  const auto computed = std::find(text.begin(), text.end(), "compute 1F0 version 0");
  ASSERT_NE(computed, text.end());
  EXPECT_EQ(computed[1], "post receive of activation of stage 1 microbatch 1 from rank 0 slot 0");
}

// Posts, sends and waits only, as "post 1" for the receive of microbatch 1.
std::vector<std::string> transfers(const RankProgram& program) {
  std::vector<std::string> text;
  for (const Instruction& instruction : program.instructions) {
    const bool computes = instruction.kind == InstructionKind::Compute;
    const char* word = instruction.kind == InstructionKind::PostReceive   ? "post"
                       : instruction.kind == InstructionKind::WaitReceive ? "wait"
                       : instruction.kind == InstructionKind::Send        ? "send"
                                                                          : nullptr;
    if (computes) text.push_back(to_string(instruction.work));
    if (word != nullptr) text.push_back(fmt::format("{} {}", word, instruction.work.microbatch.value));
  }
  return text;
}

TEST(Lower, receives_in_queue_order_stand_where_their_producers_end) {
  // F=1, B=2: rank 1 receives what is made at 1 and 2 before 1F0 ends at 2; rank 0's gradients are made at 4
  // and 7, after its forwards and before its backwards end.
  const LoweredProgram program = *lower(*generate({"1f1b", 2, 2, 1}), {.posting = Posting::InQueueOrder});
  EXPECT_THAT(transfers(program.ranks[0]), ElementsAre("0F0", "send 0", "0F1", "send 1", "post 0", "wait 0",
                                                       "0B0", "post 1", "wait 1", "0B1"));
  EXPECT_THAT(transfers(program.ranks[1]), ElementsAre("post 0", "post 1", "wait 0", "1F0", "1B0", "send 0",
                                                       "wait 1", "1F1", "1B1", "send 1"));
}

TEST(Lower, receives_at_the_consumer_stand_right_before_their_waits) {
  const LoweredProgram program = *lower(*generate({"1f1b", 2, 2, 1}), {.posting = Posting::AtConsumer});
  EXPECT_THAT(transfers(program.ranks[0]), ElementsAre("0F0", "send 0", "0F1", "send 1", "post 0", "wait 0",
                                                       "0B0", "post 1", "wait 1", "0B1"));
  EXPECT_THAT(transfers(program.ranks[1]), ElementsAre("post 0", "wait 0", "1F0", "1B0", "send 0", "post 1",
                                                       "wait 1", "1F1", "1B1", "send 1"));
}

TEST(Lower, queue_order_takes_as_many_receive_slots_as_are_open_at_once) {
  const LoweredProgram program = *lower(*generate({"1f1b", 2, 2, 1}), {.posting = Posting::InQueueOrder});
  for (const RankProgram& rank : program.ranks) {
    ASSERT_EQ(rank.links.size(), 2u);
    EXPECT_EQ(rank.links[0].receive_slots, 2);  // into rank 1: both before the first is read
    EXPECT_EQ(rank.links[1].receive_slots, 1);
  }
  // It does not grow with the microbatches.
  const LoweredProgram many = *lower(*generate({"1f1b", 8, 64, 1}), {.posting = Posting::InQueueOrder});
  for (const RankProgram& rank : many.ranks) {
    for (const Link& link : rank.links) EXPECT_LE(link.receive_slots, 8);
  }
}

TEST(Lower, neighbours_on_one_rank_hand_over_without_a_transfer) {
  const LoweredProgram program = *lower(*generate({"interleaved-1f1b", 1, 1, 2}));
  EXPECT_THAT(lines(program.ranks[0]),
              ElementsAre("acquire stage 0 microbatch 0 slot 0", "compute 0F0 version 0",
                          "hand off activation of stage 0 microbatch 0 slot 0",
                          "acquire stage 1 microbatch 0 slot 0", "compute 1F0 version 0",
                          "compute 1B0 version 0", "hand off gradient of stage 1 microbatch 0 slot 0",
                          "release stage 1 microbatch 0 slot 0", "reduce gradients of stage 1 update 0",
                          "compute 0B0 version 0", "release stage 0 microbatch 0 slot 0",
                          "reduce gradients of stage 0 update 0", "optimizer step 0"));
  ASSERT_EQ(program.ranks[0].links.size(), 1u);
  EXPECT_EQ(program.ranks[0].links[0].messages, 2);
  EXPECT_EQ(program.ranks[0].links[0].receive_slots, 1);
  EXPECT_EQ(program.ranks[0].links[0].send_slots, 0);
}

TEST(Lower, pools_have_the_slots_of_the_high_water_mark) {
  const ComputeProgram compute = *generate({"interleaved-1f1b", 4, 8, 2});
  const std::vector<int> high_water = high_water_per_stage(compute);
  const LoweredProgram program = *lower(compute);
  for (const RankProgram& rank : program.ranks) {
    for (const StageBuffers& buffers : rank.buffers)
      EXPECT_EQ(buffers.activation_slots, high_water[buffers.stage.value]);
  }
}

TEST(Lower, both_ends_of_a_link_describe_it_alike) {
  // A worker sees only its own rank: the digest is how two of them
  // find out that their programs belong together.
  const LoweredProgram program = *lower(*generate({"interleaved-1f1b", 3, 7, 2}));
  for (const RankProgram& rank : program.ranks) {
    for (const Link& link : rank.links) {
      EXPECT_EQ(link.digest, transfer_digest(program.ranks[link.source.value], link.source, link.target));
      EXPECT_EQ(link.digest, transfer_digest(program.ranks[link.target.value], link.source, link.target));
    }
  }
}

TEST(Lower, link_grows_only_where_ranks_would_wait_in_a_circle) {
  // Rank 1 reads rank 0's microbatches in reverse, and rank 0 the
  // gradients: two receives must be open at once.
  ComputeProgram program = *generate({"gpipe", 2, 2, 1});
  program.actions[1] = actions({"1F1", "1B1", "1F0", "1B0"});
  const LoweredProgram lowered = *lower(program, {1, 1});
  for (const Link& link : lowered.ranks[0].links) EXPECT_EQ(link.receive_slots, 2);
  const LoweredProgram straight = *lower(*generate({"gpipe", 2, 2, 1}), {1, 1});
  for (const Link& link : straight.ranks[0].links) EXPECT_EQ(link.receive_slots, 1);
}

TEST(Lower, split_backward_keeps_its_slot_until_the_weight_gradient) {
  const LoweredProgram program = *lower(one_rank(1, {"0F0", "0I0", "0W0"}));
  EXPECT_THAT(
      lines(program.ranks[0]),
      ElementsAre("acquire stage 0 microbatch 0 slot 0", "compute 0F0 version 0", "compute 0I0 version 0",
                  "compute 0W0 version 0", "release stage 0 microbatch 0 slot 0",
                  "reduce gradients of stage 0 update 0", "optimizer step 0"));
}

TEST(Lower, pair_acquires_before_both_halves_and_releases_after_both) {
  const LoweredProgram program = *lower(one_rank(2, {"0F0", "O(0F1;0B0)", "0B1"}));
  EXPECT_THAT(lines(program.ranks[0]),
              ElementsAre("acquire stage 0 microbatch 0 slot 0", "compute 0F0 version 0",
                          "acquire stage 0 microbatch 1 slot 1", "compute 0F1 version 0 with the next",
                          "compute 0B0 version 0", "release stage 0 microbatch 0 slot 0",
                          "compute 0B1 version 0", "release stage 0 microbatch 1 slot 1",
                          "reduce gradients of stage 0 update 0", "optimizer step 0"));
}

TEST(Lower, forward_only_program_releases_after_the_forward_and_updates_nothing) {
  ComputeProgram program = one_rank(2, {"0F0", "0F1"});
  program.forward_only = true;
  EXPECT_THAT(lines(lower(program)->ranks[0]),
              ElementsAre("acquire stage 0 microbatch 0 slot 0", "compute 0F0 version 0",
                          "release stage 0 microbatch 0 slot 0", "acquire stage 0 microbatch 1 slot 0",
                          "compute 0F1 version 0", "release stage 0 microbatch 1 slot 0"));
}

TEST(Lower, several_updates_step_after_the_last_backward_of_each) {
  ComputeProgram program = one_rank(1, {"0F0", "0B0", "0F1", "0B1"});
  program.updates = 2;
  const RankProgram rank = lower(program)->ranks[0];
  EXPECT_EQ(lines(rank)[5], "optimizer step 0");
  EXPECT_EQ(lines(rank).back(), "optimizer step 1");
  EXPECT_THAT(versions(rank), ElementsAre(0, 0, 1, 1));
}

TEST(Lower, stashed_backward_uses_the_version_of_its_forward) {
  // PipeDream: 0F1 runs before the first step, so that 0B1 must not see the weights that 0B0 made.
  ComputeProgram program = one_rank(1, {"0F0", "0F1", "0B0", "0F2", "0B1", "0B2"});
  program.updates = 3;
  program.version_rule = WeightVersionRule::Stashed;
  EXPECT_THAT(versions(lower(program)->ranks[0]), ElementsAre(0, 0, 0, 1, 0, 1));
}

TEST(Lower, double_buffered_microbatch_uses_the_weights_of_the_update_before) {
  ComputeProgram program =
      one_rank(2, {"0F0", "0F1", "0B0", "0F2", "0B1", "0F3", "0B2", "0F4", "0B3", "0F5", "0B4", "0B5"});
  program.updates = 3;
  program.version_rule = WeightVersionRule::DoubleBuffered;
  // Microbatches 0 to 3 use version 0, 4 and 5 version 1.
  EXPECT_THAT(versions(lower(program)->ranks[0]), ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1));
}

TEST(Lower, replicas_reduce_at_the_end_in_stage_order_on_both_ranks) {
  ComputeProgram program;
  program.ranks = 2;
  program.microbatches = 2;
  program.placement = {{RankIndex(0), RankIndex(1)}, {RankIndex(1), RankIndex(0)}};
  program.replica_of = {0, 1};
  program.actions = {actions({"0F0", "1F1", "1B1", "0B0"}), actions({"0F1", "1F0", "1B0", "0B1"})};
  const LoweredProgram lowered = *lower(program);
  EXPECT_FALSE(lowered.bit_identical);
  for (const RankProgram& rank : lowered.ranks) {
    std::vector<std::string> ends;
    for (const std::string& text : lines(rank)) {
      if (text.starts_with("reduce") || text.starts_with("optimizer")) ends.push_back(text);
    }
    EXPECT_THAT(ends, ElementsAre("reduce gradients of stage 0 update 0",
                                  "reduce gradients of stage 1 update 0", "optimizer step 0"));
    EXPECT_EQ(rank.buffers.size(), 2u);
  }
}

TEST(Lower, program_that_was_not_verified_is_an_internal_error_and_never_a_crash) {
  std::vector<ComputeProgram> wrong(9, *generate({"1f1b", 2, 3, 1}));
  std::swap(wrong[0].actions[0].front(), wrong[0].actions[0].back());
  wrong[1].actions[0].pop_back();
  wrong[2].actions[1].push_back(wrong[2].actions[1].front());
  wrong[3].actions[0][0].work.stage = StageIndex(-1);
  wrong[4].actions[0][0].work.microbatch = MicrobatchIndex(INT32_MAX);
  wrong[5].placement[1] = {};
  wrong[6].actions.pop_back();
  wrong[7].replica_of = {0, 7, 0};
  wrong[8].microbatches = INT32_MAX;
  for (size_t i = 0; i < wrong.size(); ++i) {
    for (const Posting posting : {Posting::Early, Posting::InQueueOrder})
      EXPECT_EQ(lower(wrong[i], {.posting = posting}).status().code(), StatusCode::kInternal) << i;
  }
}

TEST(WorkDigest, is_of_what_is_computed_and_not_of_how_it_travels) {
  const auto program = generate({"1f1b", 2, 4, 1}).value();
  RankProgram rank = lower(program)->ranks[0];
  const RankProgram late = lower(program, {.posting = Posting::AtConsumer})->ranks[0];
  EXPECT_NE(late.instructions, rank.instructions);
  EXPECT_EQ(work_digest(late), work_digest(rank));
  EXPECT_NE(work_digest(lower(*generate({"gpipe", 2, 4, 1}))->ranks[0]), work_digest(rank));
  const auto reduction =
      std::find_if(rank.instructions.begin(), rank.instructions.end(),
                   [](const auto& each) { return each.kind == InstructionKind::ReduceGradients; });
  rank.instructions.erase(reduction);
  EXPECT_NE(work_digest(late), work_digest(rank));
}

TEST(TransferDigest, order_and_identity_change_it) {
  // Both ends compare digests instead of whole programs.
  const Passage a{StageIndex(0), StageIndex(1), MicrobatchIndex(0), Flow::Activation};
  const Passage b{StageIndex(0), StageIndex(1), MicrobatchIndex(1), Flow::Activation};
  const Passage c{StageIndex(0), StageIndex(-1), MicrobatchIndex(1), Flow::Gradient};
  const auto digest = [](std::initializer_list<Passage> passages) {
    TransferDigest state;
    for (const Passage& passage : passages) state.add(passage);
    return state.value();
  };
  EXPECT_NE(digest({a, b}), digest({b, a}));
  EXPECT_NE(digest({a, b}), digest({a, c}));
  EXPECT_NE(digest({a}), digest({a, b}));
}

TEST(Lower, without_a_flush_a_step_does_not_wait_for_what_has_just_been_sent) {
  // Else the transfer of every update's last gradient would be exposed on every rank.
  const auto steps_behind_a_wait = [](const char* schedule) {
    const LoweredProgram lowered =
        *lower(*generate({.name = schedule, .ranks = 3, .microbatches = 2, .updates = 4}));
    std::vector<int> updates;
    const auto& instructions = lowered.ranks[1].instructions;
    for (size_t i = 1; i < instructions.size(); ++i) {
      const bool waits = instructions[i - 1].kind == InstructionKind::WaitSend;
      if (waits && instructions[i].kind == InstructionKind::OptimizerStep)
        updates.push_back(instructions[i].update);
    }
    return updates;
  };
  EXPECT_THAT(steps_behind_a_wait("pipedream"), ElementsAre(3));
  EXPECT_THAT(steps_behind_a_wait("pipedream-2bw"), ElementsAre(3));
  EXPECT_THAT(steps_behind_a_wait("1f1b"), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace penstock::plan
