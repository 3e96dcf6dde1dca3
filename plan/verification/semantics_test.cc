// Under which behaviour of transfers programs run to their end: what hangs pipelines in practice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/schedule/families.h"
#include "plan/verification/verify.h"

namespace penstock::plan {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr VerifyOptions kQueueDemanded{.in_order_queue = true};

ComputeProgram program_of(const std::string& name, int ranks, int microbatches, int stages_per_rank = 1) {
  return *generate(
      {.name = name, .ranks = ranks, .microbatches = microbatches, .stages_per_rank = stages_per_rank});
}

LoweredProgram in_queue_order(const ComputeProgram& program) {
  return *lower(program, {.posting = Posting::InQueueOrder});
}

std::string first(const Verdict& verdict) {
  return verdict.valid() ? "valid" : verdict.violations.front().to_string();
}

// Moves the instruction at `from` so that it stands before the one that is now at `to`.
void move(RankProgram& rank, size_t from, size_t to) {
  auto& list = rank.instructions;
  const auto at = [&](size_t index) { return list.begin() + static_cast<ptrdiff_t>(index); };
  if (from < to) std::rotate(at(from), at(from + 1), at(to));
  if (from > to) std::rotate(at(to), at(from), at(from + 1));
}

size_t find(const RankProgram& rank, InstructionKind kind, size_t from = 0) {
  for (size_t i = from; i < rank.instructions.size(); ++i) {
    if (rank.instructions[i].kind == kind) return i;
  }
  throw std::runtime_error("no such instruction");
}

// The other instruction of the same transfer.
size_t find_same(const RankProgram& rank, InstructionKind kind, const Instruction& transfer) {
  size_t at = find(rank, kind);
  while (rank.instructions[at].work != transfer.work || rank.instructions[at].flow != transfer.flow)
    at = find(rank, kind, at + 1);
  return at;
}

TEST(SendSemantics, compute_program_without_a_circle_can_be_lowered_for_all) {
  const SendSemantics holds = verify(program_of("1f1b", 4, 8)).holds;
  EXPECT_TRUE(holds.buffered && holds.rendezvous && holds.in_order_queue);
  ComputeProgram stuck = program_of("gpipe", 2, 2);
  std::swap(stuck.actions[0][1], stuck.actions[0][2]);  // 0B0 before 0F1, and 1F1 before 1B0
  EXPECT_FALSE(verify(stuck).holds.buffered);
}

TEST(SendSemantics, early_posts_stop_on_one_in_order_queue_and_the_circle_is_told) {
  // Rank 0 posts the receive of a gradient first; behind it on the queue stands the activation that the
  // gradient comes from.
  const LoweredProgram program = *lower(program_of("1f1b", 2, 2));
  const Verdict told = verify(program);
  EXPECT_EQ(first(told), "valid");
  EXPECT_TRUE(told.holds.buffered && told.holds.rendezvous);
  EXPECT_FALSE(told.holds.in_order_queue);
  EXPECT_THAT(first(verify(program, kQueueDemanded)),
              AllOf(HasSubstr("deadlock: rank 0"),
                    HasSubstr("nobody can go on where all transfers of a rank sit on one in-order queue"),
                    HasSubstr("rank 1 stands before wait receive of activation of stage 1 microbatch 0")));
}

TEST(SendSemantics, posts_in_queue_order_run_on_in_order_queues_for_every_family) {
  for (const std::string& name : schedule_names()) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      for (const int m : {1, 4, 16}) {
        const auto program = generate({.name = name, .ranks = ranks, .microbatches = m});
        if (!program.ok()) continue;
        EXPECT_EQ(first(verify(in_queue_order(*program), kQueueDemanded)), "valid")
            << name << " P=" << ranks << " m=" << m;
      }
    }
  }
}

TEST(SendSemantics, sends_that_block_before_the_next_receive_stop_the_steady_phase) {
  // Every rank with one fixed order: compute, send and wait for the send, post a receive and wait for it. Two
  // neighbours that send to each other at once then hang, unless a library buffers.
  LoweredProgram program = in_queue_order(program_of("1f1b", 4, 8));
  for (RankProgram& rank : program.ranks) {
    const auto& list = rank.instructions;
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind == InstructionKind::Send)
        move(rank, find_same(rank, InstructionKind::WaitSend, list[i]), i + 1);
      if (list[i].kind == InstructionKind::WaitReceive)
        move(rank, find_same(rank, InstructionKind::PostReceive, list[i]), i);
    }
  }
  const Verdict verdict = verify(program);
  EXPECT_TRUE(verdict.holds.buffered);
  EXPECT_FALSE(verdict.holds.rendezvous);
  EXPECT_FALSE(verdict.valid());
  EXPECT_THAT(first(verdict), AllOf(HasSubstr("deadlock"), HasSubstr("under rendezvous sends")));
}

TEST(SendSemantics, two_ranks_with_different_orders_of_transfers_stop_on_in_order_queues_only) {
  // One receive that a rank posts before its neighbour can have come to it.
  LoweredProgram program = in_queue_order(program_of("1f1b", 2, 4));
  ASSERT_EQ(first(verify(program, kQueueDemanded)), "valid");
  RankProgram& rank = program.ranks[0];
  move(rank, find(rank, InstructionKind::PostReceive), 0);
  const Verdict verdict = verify(program);
  EXPECT_EQ(first(verdict), "valid");
  EXPECT_FALSE(verdict.holds.in_order_queue);
  EXPECT_FALSE(verify(program, kQueueDemanded).valid());
}

TEST(SendSemantics, two_ranks_with_two_stages_each_tell_their_messages_apart) {
  // P=2, V=2: the next rank is the previous one too. Activations of stages 0 and 2 and the gradient of stage 2
  // all go from rank 0 to rank 1.
  const LoweredProgram sound = in_queue_order(program_of("interleaved-1f1b", 2, 2, 2));
  EXPECT_EQ(first(verify(sound, kQueueDemanded)), "valid");
  int refused = 0;
  const auto& list = sound.ranks[1].instructions;
  for (size_t i = 0; i < list.size(); ++i) {
    for (size_t j = i + 1; j < list.size(); ++j) {
      const bool are_posts =
          list[i].kind == InstructionKind::PostReceive && list[j].kind == InstructionKind::PostReceive;
      if (!are_posts) continue;
      // The two receives change their messages, and their waits their slots.
      LoweredProgram program = sound;
      RankProgram& rank = program.ranks[1];
      for (Instruction& at : rank.instructions) {
        const bool receives =
            at.kind == InstructionKind::PostReceive || at.kind == InstructionKind::WaitReceive;
        if (!receives) continue;
        const auto is = [&](const Instruction& other) {
          return at.work == other.work && at.flow == other.flow;
        };
        const Instruction& other = is(list[i]) ? list[j] : list[i];
        if (!is(list[i]) && !is(list[j])) continue;
        if (at.kind == InstructionKind::WaitReceive) {
          at.slot = other.slot;
        } else {
          at.work = other.work;
          at.flow = other.flow;
        }
      }
      for (Link& link : rank.links) link.digest = transfer_digest(rank, link.source, link.target);
      EXPECT_FALSE(verify(program).valid()) << to_string(list[i]) << " and " << to_string(list[j]);
      ++refused;
    }
  }
  EXPECT_EQ(refused, 6 * 5 / 2);
}

TEST(SendSemantics, connection_that_skips_a_stage_is_refused_at_both_ends) {
  // A tensor for a stage beyond the next one has no place in the order of any link, and hangs where links batch.
  const LoweredProgram sound = in_queue_order(program_of("1f1b", 3, 2));
  struct End {
    int rank;
    InstructionKind kind;
    int other;
  };
  for (const auto& [rank, kind, peer] :
       {End{0, InstructionKind::Send, 2}, End{2, InstructionKind::PostReceive, 0}}) {
    LoweredProgram program = sound;
    RankProgram& changed = program.ranks[static_cast<size_t>(rank)];
    changed.instructions[find(changed, kind)].peer = RankIndex(peer);
    EXPECT_THAT(first(verify(program)), HasSubstr("transfers: rank " + std::to_string(rank)));
    EXPECT_THAT(first(verify(changed)), HasSubstr("transfers: rank " + std::to_string(rank)));
  }
}

TEST(SendSemantics, send_that_is_issued_after_the_next_forward_is_refused) {
  // It would make the warm-up slower than it has to be, on every rank behind.
  LoweredProgram program = *lower(program_of("1f1b", 3, 4));
  RankProgram& rank = program.ranks[0];
  const size_t send = find(rank, InstructionKind::Send);
  move(rank, send, find(rank, InstructionKind::Compute, send) + 1);
  EXPECT_THAT(first(verify(program)),
              HasSubstr("stands before the activation of stage 0 microbatch 0 is sent or handed to stage 1"));
}

}  // namespace
}  // namespace penstock::plan
