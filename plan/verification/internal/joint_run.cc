#include "plan/verification/internal/joint_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/verification/internal/circle.h"

namespace penstock::plan::internal {
namespace {

int link_of(const std::vector<std::pair<int, int>>& links, RankIndex peer) {
  return std::lower_bound(links.begin(), links.end(), std::pair(peer.value, 0))->second;
}

const char* words_of(Sends sends) {
  switch (sends) {
    case Sends::Buffered:
      return " even with buffered sends";
    case Sends::Rendezvous:
      return " under rendezvous sends";
    case Sends::InOrderQueue:
      return " where all transfers of a rank sit on one in-order queue";
  }
  return "";
}

}  // namespace

JointRun::JointRun(const LoweredProgram& program, Sends sends)
    : program_(program), sends_(sends), ranks_(program.ranks.size()) {
  for (const RankProgram& rank : program.ranks) {
    for (const StageBuffers& buffers : rank.buffers) holders_[buffers.stage.value].push_back(rank.rank.value);
    for (const Link& link : rank.links) {
      if (link.source != rank.rank || link.target == rank.rank) continue;
      const int index = static_cast<int>(links_.size());
      LinkRun& run = links_.emplace_back();
      run.source = link.source.value;
      run.target = link.target.value;
      run.sent_in_slot.resize(link.send_slots);
      run.posted_in_slot.resize(link.receive_slots);
      // A rank's links stand in order of source and target, and the ranks in order: both lists ascend.
      ranks_[run.source].outgoing.emplace_back(run.target, index);
      ranks_[run.target].incoming.emplace_back(run.source, index);
    }
  }
  std::erase_if(holders_, [](const auto& entry) { return entry.second.size() < 2; });
}

JointRun::LinkRun& JointRun::link_to(int rank, RankIndex peer) {
  return links_[link_of(ranks_[rank].outgoing, peer)];
}

JointRun::LinkRun& JointRun::link_from(int rank, RankIndex peer) {
  return links_[link_of(ranks_[rank].incoming, peer)];
}

bool JointRun::reaches_the_end() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) ready_.push_back(static_cast<int>(rank));
  while (!ready_.empty()) {
    const int rank = ready_.front();
    ready_.pop_front();
    while (ranks_[rank].next < instructions_of(rank).size() && may_run(rank)) execute(rank);
  }
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].next < program_.ranks[rank].instructions.size()) return false;
  }
  return true;
}

bool JointRun::is_shared(const Instruction& instruction) const {
  return instruction.kind == InstructionKind::ReduceGradients &&
         holders_.contains(instruction.work.stage.value);
}

// A rank past the last one has nothing to tell.
bool JointRun::has_validated(int rank) const {
  return rank == static_cast<int>(ranks_.size()) || ranks_[rank].has_validated;
}

bool JointRun::may_run(int rank) {
  const Instruction& instruction = current(rank);
  if (instruction.kind == InstructionKind::ValidateStep) return has_validated(rank + 1);
  if (instruction.kind == InstructionKind::WaitReceive) {
    const LinkRun& run = link_from(rank, instruction.peer);
    const int there = sends_ == Sends::InOrderQueue ? run.passed : run.sent;
    return there > run.posted_in_slot[instruction.slot];
  }
  if (instruction.kind == InstructionKind::WaitSend && sends_ != Sends::Buffered) {
    const LinkRun& run = link_to(rank, instruction.peer);
    const int gone = sends_ == Sends::InOrderQueue ? run.passed : run.posted;
    return gone > run.sent_in_slot[instruction.slot];
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
    LinkRun& run = link_to(rank, instruction.peer);
    run.sent_in_slot[instruction.slot] = run.sent++;
    if (sends_ != Sends::InOrderQueue) ready_.push_back(instruction.peer.value);
    if (sends_ == Sends::InOrderQueue) enqueue(rank, run);
  } else if (instruction.kind == InstructionKind::PostReceive) {
    LinkRun& run = link_from(rank, instruction.peer);
    run.posted_in_slot[instruction.slot] = run.posted++;
    if (sends_ == Sends::Rendezvous) ready_.push_back(instruction.peer.value);
    if (sends_ == Sends::InOrderQueue) enqueue(rank, run);
  } else if (instruction.kind == InstructionKind::ValidateStep) {
    ranks_[rank].has_validated = true;
    if (rank > 0) ready_.push_back(rank - 1);
  } else if (is_shared(instruction)) {
    for (const int other : holders_.at(instruction.work.stage.value)) ready_.push_back(other);
  }
  ++ranks_[rank].next;
}

void JointRun::enqueue(int rank, const LinkRun& link) {
  ranks_[rank].queue.push_back(static_cast<int>(&link - links_.data()));
  if (ranks_[rank].queue.size() == 1) pass_heads(rank);
}

// Messages of a link have one order at both ends, so that two heads of one link are the same message.
void JointRun::pass_heads(int rank) {
  std::vector<int> changed = {rank};
  while (!changed.empty()) {
    const int at = changed.back();
    changed.pop_back();
    if (ranks_[at].queue.empty()) continue;
    const int head = ranks_[at].queue.front();
    LinkRun& link = links_[head];
    const int other = link.source == at ? link.target : link.source;
    if (ranks_[other].queue.empty() || ranks_[other].queue.front() != head) continue;
    ++link.passed;
    for (const int end : {at, other}) {
      ranks_[end].queue.pop_front();
      ready_.push_back(end);
      changed.push_back(end);
    }
  }
}

int JointRun::rank_that_blocks(int rank) {
  if (ranks_[rank].next == instructions_of(rank).size()) return -1;
  const Instruction& instruction = current(rank);
  if (instruction.kind == InstructionKind::ValidateStep) return rank + 1;
  if (is_shared(instruction)) {
    const auto& arrived = meetings_[{instruction.work.stage.value, instruction.update}];
    for (const int holder : holders_.at(instruction.work.stage.value)) {
      if (!arrived.contains(holder)) return holder;
    }
    return -1;
  }
  if (sends_ != Sends::InOrderQueue) return instruction.peer.value;
  const LinkRun& head = links_[ranks_[rank].queue.front()];  // it waits for a transfer that is still queued
  return head.source == rank ? head.target : head.source;
}

Violation JointRun::describe() {
  std::vector<int> waits_for;
  for (size_t rank = 0; rank < ranks_.size(); ++rank)
    waits_for.push_back(rank_that_blocks(static_cast<int>(rank)));
  return describe_circle(waits_for, words_of(sends_), [&](int rank) {
    return Standstill{static_cast<int>(ranks_[rank].next), to_string(current(rank)),
                      fmt::format("rank {}", waits_for[rank])};
  });
}

}  // namespace penstock::plan::internal
