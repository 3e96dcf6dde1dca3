#include "tests/programs/mutations.h"

#include <algorithm>

namespace penstock::checking {
namespace {

using plan::Action;
using plan::ActionKind;
using plan::ComputeProgram;
using plan::Instruction;
using plan::InstructionKind;
using plan::LoweredProgram;
using plan::RankProgram;
using plan::Work;
using plan::judging::draw;
using plan::judging::Random;

template <typename T>
void drop(std::vector<T>& list, int at) {
  list.erase(list.begin() + at);
}

template <typename T>
void insert(std::vector<T>& list, const T& item, Random& random) {
  list.insert(list.begin() + draw(random, static_cast<int>(list.size()) + 1), item);
}

template <typename T>
void move(std::vector<T>& source, int at, std::vector<T>& target, Random& random) {
  const T item = source[at];
  drop(source, at);
  insert(target, item, random);
}

// One of `kinds`, or any where there is none; -1 in an empty list.
int find_kind(const std::vector<Instruction>& list, std::initializer_list<InstructionKind> kinds,
              Random& random) {
  std::vector<int> found;
  for (size_t i = 0; i < list.size(); ++i) {
    if (std::find(kinds.begin(), kinds.end(), list[i].kind) != kinds.end())
      found.push_back(static_cast<int>(i));
  }
  if (!found.empty()) return found[draw(random, static_cast<int>(found.size()))];
  return list.empty() ? -1 : draw(random, static_cast<int>(list.size()));
}

void change_field(Instruction& at, const RankProgram& rank, Random& random) {
  switch (draw(random, 9)) {
    case 0:
      at.slot = draw(random, 6) - 1;
      return;
    case 1:
      at.work.stage = StageIndex(draw(random, rank.stages + 2) - 1);
      return;
    case 2:
      at.work.microbatch = MicrobatchIndex(draw(random, rank.microbatches * rank.updates + 2) - 1);
      return;
    case 3:
      at.peer = RankIndex(draw(random, rank.ranks + 2) - 1);
      return;
    case 4:
      at.kind = static_cast<InstructionKind>(draw(random, 11));
      return;
    case 5:
      at.flow = static_cast<plan::Flow>(draw(random, 2));
      return;
    case 6:
      at.weight_version = draw(random, 3);
      return;
    case 7:
      at.work.kind = static_cast<ActionKind>(draw(random, 4));
      return;
    default:
      at.overlaps_next = !at.overlaps_next;
  }
}

void change_pool(RankProgram& rank, Random& random) {
  const int by = draw(random, 3) - 1;
  if (rank.links.empty() || draw(random, 2) == 0) {
    plan::StageBuffers& buffers = rank.buffers[draw(random, static_cast<int>(rank.buffers.size()))];
    buffers.activation_slots += by;
    if (by != 0) return;
    buffers.backward = static_cast<plan::BackwardForm>(draw(random, 2));
    if (draw(random, 2) == 0) buffers.twin = RankIndex(draw(random, rank.ranks + 1) - 1);
    if (draw(random, 4) == 0) buffers.replica = draw(random, 3) - 1;
    return;
  }
  plan::Link& link = rank.links[draw(random, static_cast<int>(rank.links.size()))];
  int32_t* const counts[] = {&link.receive_slots, &link.send_slots, &link.provisional_messages};
  *counts[draw(random, 3)] += by;
}

}  // namespace

void mutate(ComputeProgram& program, Random& random) {
  auto& actions = program.actions[draw(random, program.ranks)];
  if (actions.empty()) return;
  const int size = static_cast<int>(actions.size());
  const int at = draw(random, size);
  Action& action = actions[at];
  Work& work = action.overlapped && draw(random, 2) == 0 ? *action.overlapped : action.work;
  switch (draw(random, 12)) {
    case 0:
    case 1:
      return std::swap(action, actions[draw(random, size)]);
    case 2:
    case 3:
      return std::swap(action, actions[std::min(at + 1, size - 1)]);
    case 4:
      return drop(actions, at);
    case 5:
      return insert(actions, Action(action), random);
    case 6:
      return move(actions, at, program.actions[draw(random, program.ranks)], random);
    case 7:
      work.stage = StageIndex(draw(random, program.stages() + 2) - 1);
      return;
    case 8:
      work.microbatch = MicrobatchIndex(draw(random, program.total_microbatches() + 2) - 1);
      return;
    case 9:
      work.kind = static_cast<ActionKind>(draw(random, 4));
      return;
    case 10:  // two actions become a pair
      if (at + 1 == size || action.overlapped || actions[at + 1].overlapped) return;
      action.overlapped = actions[at + 1].work;
      return drop(actions, at + 1);
    default:  // a fused backward becomes two parts
      if (action.overlapped || action.work.kind != ActionKind::Backward) return;
      action.work.kind = ActionKind::InputGradient;
      return insert(actions,
                    plan::single(action.work.stage, ActionKind::WeightGradient, action.work.microbatch),
                    random);
  }
}

void mutate(LoweredProgram& program, Random& random) {
  const int ranks = static_cast<int>(program.ranks.size());
  RankProgram& rank = program.ranks[draw(random, ranks)];
  auto& list = rank.instructions;
  if (list.empty()) return;
  const int size = static_cast<int>(list.size());
  const int at = draw(random, size);
  switch (draw(random, 13)) {
    case 0:
      return std::swap(list[at], list[draw(random, size)]);
    case 1:
      return std::swap(list[at], list[std::min(at + 1, size - 1)]);
    case 2:
      return drop(list, at);
    case 3:
      return insert(list, Instruction(list[at]), random);
    case 4:
      return move(list, at, list, random);
    case 5:
      return move(list, at, program.ranks[draw(random, ranks)].instructions, random);
    case 6:  // two transfers
      return std::swap(list[find_kind(list, {InstructionKind::Send, InstructionKind::PostReceive}, random)],
                       list[find_kind(list, {InstructionKind::Send, InstructionKind::PostReceive}, random)]);
    case 7:
      return drop(list, find_kind(list, {InstructionKind::WaitReceive, InstructionKind::WaitSend}, random));
    case 8:  // what only others can be hurt by
      return move(list, find_kind(list, {InstructionKind::PostReceive, InstructionKind::WaitSend}, random),
                  list, random);
    case 9:
      return change_pool(rank, random);
    case 10:
      return move(list, find_kind(list, {InstructionKind::ValidateStep}, random), list, random);
    default:
      change_field(list[at], rank, random);
  }
}

namespace {

int sent_before_validation(const RankProgram& source, RankIndex target) {
  int sent = 0;
  for (const Instruction& at : source.instructions) {
    if (at.kind == InstructionKind::ValidateStep) return sent;
    sent += at.kind == InstructionKind::Send && at.peer == target ? 1 : 0;
  }
  return 0;
}

}  // namespace

void describe_links_again(LoweredProgram& program) {
  for (RankProgram& rank : program.ranks) {
    for (plan::Link& link : rank.links) {
      link.messages = 0;
      for (const Instruction& at : rank.instructions) {
        const bool is_local = link.source == link.target;
        const bool passes = is_local ? at.kind == InstructionKind::HandOff
                            : link.source == rank.rank
                                ? at.kind == InstructionKind::Send && at.peer == link.target
                                : at.kind == InstructionKind::PostReceive && at.peer == link.source;
        link.messages += passes ? 1 : 0;
      }
      link.provisional_messages = sent_before_validation(program.ranks[link.source.value], link.target);
      link.digest = plan::transfer_digest(rank, link.source, link.target);
    }
  }
}

}  // namespace penstock::checking
