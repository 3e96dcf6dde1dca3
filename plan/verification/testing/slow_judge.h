// Judges that run a program step by step, with tokens for tensors and memory for slots. Slow, and written
// apart from the verifier: they share the plain data types and nothing else. For tests.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "plan/schedule/lowered.h"
#include "plan/schedule/program.h"

namespace penstock::plan::judging {

// "" when the program is valid, else why not.
inline std::string judge(const ComputeProgram& program) {
  std::set<Work> done;
  const auto is_back = [&](int stage, MicrobatchIndex microbatch) {
    return done.contains({StageIndex(stage), ActionKind::Backward, microbatch}) ||
           done.contains({StageIndex(stage), ActionKind::InputGradient, microbatch});
  };
  const auto steps_of = [&](int rank) {
    for (int update = 0; update < program.updates; ++update) {
      for (int i = update * program.microbatches; i < (update + 1) * program.microbatches; ++i) {
        for (int stage = 0; stage < program.stages(); ++stage) {
          const MicrobatchIndex microbatch(i);
          if (program.rank_of(StageIndex(stage), microbatch).value != rank) continue;
          const bool ended = done.contains({StageIndex(stage), ActionKind::Backward, microbatch}) ||
                             done.contains({StageIndex(stage), ActionKind::WeightGradient, microbatch});
          if (!ended) return update;
        }
      }
    }
    return program.updates;
  };
  std::string why;
  const auto may_run = [&](int rank, const Work& work) {
    const int s = work.stage.value;
    const MicrobatchIndex i = work.microbatch;
    const bool exists =
        s >= 0 && s < program.stages() && i.value >= 0 && i.value < program.total_microbatches();
    if (!exists || program.rank_of(work.stage, i).value != rank || done.contains(work)) {
      why = to_string(work) + " cannot be there";
      return false;
    }
    const int update = i.value / program.microbatches;
    const int steps = steps_of(rank);
    if (program.version_rule == WeightVersionRule::Synchronous && !program.forward_only && steps != update)
      return false;
    if (program.version_rule == WeightVersionRule::DoubleBuffered && steps < update - 1) return false;
    switch (work.kind) {
      case ActionKind::Forward:
        return s == 0 || done.contains({StageIndex(s - 1), ActionKind::Forward, i});
      case ActionKind::WeightGradient:
        return done.contains({work.stage, ActionKind::InputGradient, i});
      case ActionKind::Backward:
      case ActionKind::InputGradient:
        return !program.forward_only && !is_back(s, i) &&
               done.contains({work.stage, ActionKind::Forward, i}) &&
               (s == program.stages() - 1 || is_back(s + 1, i));
    }
    return false;
  };
  std::vector<size_t> next(program.ranks, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < program.ranks; ++rank) {
      if (next[rank] == program.actions[rank].size()) continue;
      const Action& action = program.actions[rank][next[rank]];
      if (!may_run(rank, action.work)) continue;
      if (action.overlapped && (*action.overlapped == action.work || !may_run(rank, *action.overlapped)))
        continue;
      if (action.overlapped && action.overlapped->stage == action.work.stage &&
          action.overlapped->microbatch == action.work.microbatch) {
        continue;  // B and I of the same microbatch at once
      }
      done.insert(action.work);
      if (action.overlapped) done.insert(*action.overlapped);
      ++next[rank];
      moved = true;
    }
  }
  for (int rank = 0; rank < program.ranks; ++rank) {
    if (next[rank] < program.actions[rank].size()) {
      return "stands before " + to_string(program.actions[rank][next[rank]]) +
             (why.empty() ? "" : ": " + why);
    }
  }
  for (int stage = 0; stage < program.stages(); ++stage) {
    for (int i = 0; i < program.total_microbatches(); ++i) {
      const StageIndex s(stage);
      const MicrobatchIndex microbatch(i);
      if (!done.contains({s, ActionKind::Forward, microbatch})) return "a forward is missing";
      if (program.forward_only) continue;
      const bool fused = done.contains({s, ActionKind::Backward, microbatch});
      const bool split = done.contains({s, ActionKind::InputGradient, microbatch}) &&
                         done.contains({s, ActionKind::WeightGradient, microbatch});
      if (!fused && !split) return "a backward is missing";
    }
  }
  return "";
}

// Executes lowered programs over in-order links, one instruction of a random rank at a time.
class LoweredJudge {
 public:
  LoweredJudge(const LoweredProgram& program, bool rendezvous, uint64_t seed)
      : program_(program), rendezvous_(rendezvous), random_(seed), ranks_(program.ranks.size()) {}

  // "" when every order of events that this seed draws is safe and ends.
  std::string run() {
    const RankProgram& first = program_.ranks.front();
    for (const RankProgram& rank : program_.ranks) {
      for (const Instruction& instruction : rank.instructions) {
        if (instruction.kind == InstructionKind::Compute && instruction.work.kind == ActionKind::Forward) {
          ++expected_[{rank.rank.value, instruction.work.stage.value,
                       instruction.work.microbatch.value / first.microbatches}];
        }
      }
      for (const StageBuffers& buffers : rank.buffers) holders_[buffers.stage.value].insert(rank.rank.value);
    }
    while (why_.empty()) {
      std::vector<int> able;
      bool ended = true;
      for (size_t rank = 0; rank < ranks_.size(); ++rank) {
        const bool at_end = ranks_[rank].next == program_.ranks[rank].instructions.size();
        ended = ended && at_end;
        if (!at_end && may_run(static_cast<int>(rank))) able.push_back(static_cast<int>(rank));
      }
      if (ended) break;
      if (able.empty()) return "deadlock";
      execute(able[random_() % able.size()]);
    }
    if (why_.empty()) check_end();
    return why_;
  }

 private:
  using Token = std::tuple<int, int, Flow>;  // target stage, microbatch, flow
  struct SendSlot {
    std::optional<Token> token;
    bool is_sent = false;
    size_t number = 0;
  };
  struct ReceiveSlot {
    std::optional<Token> token;  // what has arrived
    bool is_posted = false;
  };
  struct Where {
    bool is_local;
    int peer;
    int slot;
  };
  struct RankMemory {
    size_t next = 0;
    std::map<std::pair<int, int>, int> activations;  // (stage, slot): microbatch
    std::map<std::pair<int, int>, SendSlot> sends;   // (peer, slot)
    std::map<std::pair<int, int>, ReceiveSlot> receives;
    std::map<int, Token> hand_offs;            // slot
    std::map<Token, Where> readable;           // waited for or handed over
    std::map<std::pair<int, int>, int> ended;  // (stage, update): backwards
    std::set<std::pair<int, int>> reduced;
    int steps = 0;
  };
  struct Wire {
    std::deque<Token> sent;
    std::deque<int> posted;  // receive slots
    size_t matched = 0;
    size_t total_sent = 0;
  };

  const Instruction& now(int rank) const { return program_.ranks[rank].instructions[ranks_[rank].next]; }
  void fail(const std::string& why) {
    if (why_.empty()) why_ = why;
  }

  static Token token_of(const Instruction& instruction) {
    const bool receives =
        instruction.kind == InstructionKind::PostReceive || instruction.kind == InstructionKind::WaitReceive;
    const int forth = instruction.flow == Flow::Activation ? 1 : -1;
    return {instruction.work.stage.value + (receives ? 0 : forth), instruction.work.microbatch.value,
            instruction.flow};
  }
  std::optional<Token> input_of(const Work& work) const {
    const bool is_forward = work.kind == ActionKind::Forward;
    if (work.kind == ActionKind::WeightGradient) return std::nullopt;
    if (work.stage.value == (is_forward ? 0 : program_.ranks.front().stages - 1)) return std::nullopt;
    return Token{work.stage.value, work.microbatch.value, is_forward ? Flow::Activation : Flow::Gradient};
  }
  std::optional<Token> output_of(const Work& work) const {
    const bool is_forward = work.kind == ActionKind::Forward;
    if (work.kind == ActionKind::WeightGradient) return std::nullopt;
    if (work.stage.value == (is_forward ? program_.ranks.front().stages - 1 : 0)) return std::nullopt;
    return Token{work.stage.value + (is_forward ? 1 : -1), work.microbatch.value,
                 is_forward ? Flow::Activation : Flow::Gradient};
  }

  bool may_run(int rank) {
    const Instruction& instruction = now(rank);
    RankMemory& memory = ranks_[rank];
    if (instruction.kind == InstructionKind::WaitReceive) {
      const ReceiveSlot& slot = memory.receives[{instruction.peer.value, instruction.slot}];
      return slot.token.has_value() || !slot.is_posted;
    }
    if (instruction.kind == InstructionKind::WaitSend) {
      const SendSlot& slot = memory.sends[{instruction.peer.value, instruction.slot}];
      return !rendezvous_ || !slot.is_sent || wires_[{rank, instruction.peer.value}].matched > slot.number;
    }
    if (instruction.kind == InstructionKind::ReduceGradients) {
      const int stage = instruction.work.stage.value;
      for (const int holder : holders_[stage]) {
        const auto& other = ranks_[holder];
        if (other.reduced.contains({stage, instruction.update})) continue;
        const auto& list = program_.ranks[holder].instructions;
        if (other.next == list.size()) return false;
        const Instruction& theirs = list[other.next];
        const bool is_there = theirs.kind == InstructionKind::ReduceGradients &&
                              theirs.work.stage.value == stage && theirs.update == instruction.update;
        if (!is_there) return false;
      }
    }
    return true;
  }

  void match(int source, int target) {
    Wire& wire = wires_[{source, target}];
    while (!wire.sent.empty() && !wire.posted.empty()) {
      ranks_[target].receives[{source, wire.posted.front()}].token = wire.sent.front();
      wire.sent.pop_front();
      wire.posted.pop_front();
      ++wire.matched;
    }
  }

  void execute(int rank) {
    const Instruction instruction = now(rank);
    RankMemory& memory = ranks_[rank];
    const int peer = instruction.peer.value;
    const std::pair slot_key(peer, instruction.slot);
    const std::pair lease_key(instruction.work.stage.value, instruction.slot);
    ++memory.next;
    switch (instruction.kind) {
      case InstructionKind::AcquireActivation:
        if (instruction.slot < 0 || instruction.slot >= slots_of_stage(rank, instruction.work.stage.value))
          fail("no such slot");
        if (!memory.activations.emplace(lease_key, instruction.work.microbatch.value).second)
          fail("slot is leased");
        return;
      case InstructionKind::ReleaseActivation:
        if (!memory.activations.contains(lease_key)) return fail("release of no lease");
        if (memory.activations[lease_key] != instruction.work.microbatch.value)
          fail("release of another's lease");
        memory.activations.erase(lease_key);
        return;
      case InstructionKind::PostReceive: {
        ReceiveSlot& slot = memory.receives[slot_key];
        if (slot.is_posted) return fail("receive slot is in use");
        slot = ReceiveSlot{std::nullopt, true};
        wires_[{peer, rank}].posted.push_back(instruction.slot);
        return match(peer, rank);
      }
      case InstructionKind::WaitReceive: {
        const ReceiveSlot& slot = memory.receives[slot_key];
        if (!slot.token || *slot.token != token_of(instruction)) return fail("another message arrived");
        if (!memory.readable.emplace(*slot.token, Where{false, peer, instruction.slot}).second)
          fail("waited twice");
        return;
      }
      case InstructionKind::Compute:
        if (instruction.overlaps_next) {
          if (memory.next == program_.ranks[rank].instructions.size()) return fail("half a pair");
          const Instruction second = now(rank);
          if (second.kind != InstructionKind::Compute || second.overlaps_next) return fail("half a pair");
          ++memory.next;
          return compute(rank, {instruction.work, second.work});
        }
        return compute(rank, {instruction.work});
      case InstructionKind::Send: {
        SendSlot& slot = memory.sends[slot_key];
        if (!slot.token || slot.is_sent || *slot.token != token_of(instruction))
          return fail("sends another tensor");
        Wire& wire = wires_[{rank, peer}];
        slot.is_sent = true;
        slot.number = wire.total_sent++;
        wire.sent.push_back(*slot.token);
        return match(rank, peer);
      }
      case InstructionKind::WaitSend: {
        SendSlot& slot = memory.sends[slot_key];
        if (!slot.is_sent) return fail("waits for no send");
        slot = SendSlot{};
        return;
      }
      case InstructionKind::HandOff: {
        const Token token = token_of(instruction);
        if (!memory.hand_offs.contains(instruction.slot) || memory.hand_offs[instruction.slot] != token) {
          return fail("hands off another tensor");
        }
        if (!memory.readable.emplace(token, Where{true, rank, instruction.slot}).second)
          fail("handed off twice");
        return;
      }
      case InstructionKind::ReduceGradients: {
        const std::pair of(instruction.work.stage.value, instruction.update);
        if (memory.ended[of] != expected_[{rank, of.first, of.second}]) fail("gradients are incomplete");
        if (!memory.reduced.insert(of).second) fail("reduced twice");
        return;
      }
      case InstructionKind::OptimizerStep:
        if (instruction.update != memory.steps++) fail("step out of order");
        for (const StageBuffers& buffers : program_.ranks[rank].buffers) {
          if (!memory.reduced.contains({buffers.stage.value, instruction.update}))
            fail("step before reduction");
        }
        return;
    }
  }

  int slots_of_stage(int rank, int stage) const {
    for (const StageBuffers& buffers : program_.ranks[rank].buffers) {
      if (buffers.stage.value == stage) return buffers.activation_slots;
    }
    return 0;
  }

  void compute(int rank, const std::vector<Work>& works) {
    RankMemory& memory = ranks_[rank];
    for (const Work& work : works) {
      const bool has_lease =
          std::any_of(memory.activations.begin(), memory.activations.end(), [&](const auto& lease) {
            return lease.first.first == work.stage.value && lease.second == work.microbatch.value;
          });
      if (!has_lease) fail("no lease for " + to_string(work));
      if (work.kind == ActionKind::WeightGradient &&
          !done_.contains({work.stage, ActionKind::InputGradient, work.microbatch})) {
        fail("W before I");
      }
      if (work.kind != ActionKind::Forward &&
          !done_.contains({work.stage, ActionKind::Forward, work.microbatch})) {
        fail("backward before forward");
      }
      if (const auto input = input_of(work); input && !memory.readable.contains(*input))
        fail("no input for " + to_string(work));
    }
    for (const Work& work : works) {
      if (!done_.insert(work).second) fail("twice " + to_string(work));
      if (const auto output = output_of(work)) write(rank, *output);
      const int update = work.microbatch.value / program_.ranks.front().microbatches;
      const bool ends = work.kind == ActionKind::Backward || work.kind == ActionKind::WeightGradient;
      if (ends) ++memory.ended[{work.stage.value, update}];
      if (ends && memory.reduced.contains({work.stage.value, update})) fail("backward after reduction");
    }
    for (const Work& work : works) {
      const auto input = input_of(work);
      if (!input || !why_.empty()) continue;
      const Where where = memory.readable[*input];
      memory.readable.erase(*input);
      if (where.is_local) {
        memory.hand_offs.erase(where.slot);
      } else {
        memory.receives[{where.peer, where.slot}] = ReceiveSlot{};
      }
    }
  }

  // A computation writes its output into the slot that the next instruction for it names.
  void write(int rank, const Token& token) {
    RankMemory& memory = ranks_[rank];
    const auto& list = program_.ranks[rank].instructions;
    for (size_t i = memory.next; i < list.size(); ++i) {
      const bool passes = list[i].kind == InstructionKind::Send || list[i].kind == InstructionKind::HandOff;
      if (!passes || token_of(list[i]) != token) continue;
      if (list[i].kind == InstructionKind::HandOff) {
        if (!memory.hand_offs.emplace(list[i].slot, token).second) fail("hand-off slot is in use");
        return;
      }
      SendSlot& slot = memory.sends[{list[i].peer.value, list[i].slot}];
      if (slot.token) return fail("send slot is in use");
      slot.token = token;
      return;
    }
    fail("output goes nowhere");
  }

  void check_end() {
    const RankProgram& first = program_.ranks.front();
    for (int stage = 0; stage < first.stages; ++stage) {
      for (int i = 0; i < first.microbatches * first.updates; ++i) {
        const auto has = [&](ActionKind kind) {
          return done_.contains({StageIndex(stage), kind, MicrobatchIndex(i)});
        };
        const bool backward =
            has(ActionKind::Backward) != (has(ActionKind::InputGradient) && has(ActionKind::WeightGradient));
        if (!has(ActionKind::Forward) || (!first.forward_only && !backward)) fail("incomplete");
      }
    }
    for (const RankMemory& memory : ranks_) {
      if (!memory.activations.empty()) fail("lease at the end");
      if (!first.forward_only && memory.steps != first.updates) fail("steps are missing");
      for (const auto& [key, slot] : memory.sends) {
        if (slot.token) fail("send is not waited for");
      }
      for (const auto& [key, slot] : memory.receives) {
        if (slot.is_posted) fail("receive is not read");
      }
    }
  }

  const LoweredProgram& program_;
  bool rendezvous_;
  std::mt19937_64 random_;
  std::vector<RankMemory> ranks_;
  std::map<std::pair<int, int>, Wire> wires_;
  std::map<std::tuple<int, int, int>, int> expected_;  // (rank, stage, update): backwards
  std::map<int, std::set<int>> holders_;
  std::set<Work> done_;
  std::string why_;
};

inline std::string judge(const LoweredProgram& program, bool rendezvous, uint64_t seed) {
  return LoweredJudge(program, rendezvous, seed).run();
}

}  // namespace penstock::plan::judging
