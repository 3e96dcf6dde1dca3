#include "plan/verification/internal/joint_run.h"

#include <fmt/format.h>

#include "plan/verification/internal/circle.h"

namespace penstock::plan::internal {

JointRun::JointRun(const LoweredProgram& program, Sends sends)
    : program_(program), sends_(sends), next_(program.ranks.size(), 0) {
  for (const RankProgram& rank : program.ranks) {
    for (const StageBuffers& buffers : rank.buffers) holders_[buffers.stage.value].push_back(rank.rank.value);
    for (const Link& link : rank.links) {
      LinkRun& run = links_[{link.source.value, link.target.value}];
      run.sent_in_slot.resize(link.send_slots);
      run.posted_in_slot.resize(link.receive_slots);
    }
  }
  std::erase_if(holders_, [](const auto& entry) { return entry.second.size() < 2; });
}

bool JointRun::reaches_the_end() {
  for (size_t rank = 0; rank < next_.size(); ++rank) ready_.push_back(static_cast<int>(rank));
  while (!ready_.empty()) {
    const int rank = ready_.front();
    ready_.pop_front();
    while (next_[rank] < instructions_of(rank).size() && may_run(rank)) execute(rank);
  }
  for (size_t rank = 0; rank < next_.size(); ++rank) {
    if (next_[rank] < program_.ranks[rank].instructions.size()) return false;
  }
  return true;
}

bool JointRun::is_shared(const Instruction& instruction) const {
  return instruction.kind == InstructionKind::ReduceGradients &&
         holders_.contains(instruction.work.stage.value);
}

bool JointRun::may_run(int rank) {
  const Instruction& instruction = current(rank);
  if (instruction.kind == InstructionKind::WaitReceive) {
    const LinkRun& run = link(instruction.peer.value, rank);
    return run.sent > run.posted_in_slot[instruction.slot];
  }
  if (instruction.kind == InstructionKind::WaitSend && sends_ == Sends::Rendezvous) {
    const LinkRun& run = link(rank, instruction.peer.value);
    return run.posted > run.sent_in_slot[instruction.slot];
  }
  if (!is_shared(instruction)) return true;
  // A sum over replicas is made when all of them have come to it.
  auto& arrived = meetings_[{instruction.work.stage.value, instruction.update}];
  arrived.insert(rank);
  return arrived.size() == holders_.at(instruction.work.stage.value).size();
}

void JointRun::execute(int rank) {
  const Instruction& instruction = current(rank);
  if (instruction.kind == InstructionKind::Send) {
    LinkRun& run = link(rank, instruction.peer.value);
    run.sent_in_slot[instruction.slot] = run.sent++;
    ready_.push_back(instruction.peer.value);
  } else if (instruction.kind == InstructionKind::PostReceive) {
    LinkRun& run = link(instruction.peer.value, rank);
    run.posted_in_slot[instruction.slot] = run.posted++;
    if (sends_ == Sends::Rendezvous) ready_.push_back(instruction.peer.value);
  } else if (is_shared(instruction)) {
    for (const int other : holders_.at(instruction.work.stage.value)) ready_.push_back(other);
  }
  ++next_[rank];
}

int JointRun::rank_that_blocks(int rank) {
  if (next_[rank] == instructions_of(rank).size()) return -1;
  const Instruction& instruction = current(rank);
  if (!is_shared(instruction)) return instruction.peer.value;
  const auto& arrived = meetings_[{instruction.work.stage.value, instruction.update}];
  for (const int holder : holders_.at(instruction.work.stage.value)) {
    if (!arrived.contains(holder)) return holder;
  }
  return -1;
}

Violation JointRun::describe() {
  std::vector<int> waits_for;
  for (size_t rank = 0; rank < next_.size(); ++rank)
    waits_for.push_back(rank_that_blocks(static_cast<int>(rank)));
  const char* sends = sends_ == Sends::Buffered ? " even with buffered sends" : " under rendezvous sends";
  return describe_circle(waits_for, sends, [&](int rank) {
    return Standstill{static_cast<int>(next_[rank]), to_string(current(rank)),
                      fmt::format("rank {}", waits_for[rank])};
  });
}

}  // namespace penstock::plan::internal
