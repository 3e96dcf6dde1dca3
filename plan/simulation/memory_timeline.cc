#include "plan/simulation/memory_timeline.h"

#include <algorithm>

#include "plan/schedule/dataflow.h"

namespace penstock::plan {
namespace {

// 2^24 actions at most (limits.h) each add one activation and one message: all sums stay below 2^62.
constexpr int64_t kMostTensorBytes = int64_t{1} << 37;
constexpr int64_t kMostStaticBytes = int64_t{1} << 50;

Status check_entry(const char* field, size_t index, int64_t bytes, int64_t most) {
  if (bytes >= -most && bytes <= most) return ok_status();
  return invalid_argument("memory costs: {}[{}]: expected at most {} bytes, found {}", field, index, most,
                          bytes);
}

Status check_size(const char* field, size_t found, size_t expected, bool may_be_empty) {
  if (found == expected || (may_be_empty && found == 0)) return ok_status();
  return invalid_argument("memory costs: {}: expected {} entries, found {}", field, expected, found);
}

Status check_costs(const ComputeProgram& program, const MemoryCosts& costs) {
  const auto stages = static_cast<size_t>(program.stages());
  PENSTOCK_RETURN_IF_ERROR(check_size("stages", costs.stages.size(), stages, false));
  PENSTOCK_RETURN_IF_ERROR(check_size("static_bytes", costs.static_bytes.size(), program.ranks, true));
  PENSTOCK_RETURN_IF_ERROR(check_size("message_bytes", costs.message_bytes.size(), stages - 1, true));
  for (size_t stage = 0; stage < stages; ++stage) {
    const ActivationBytes& of = costs.stages[stage];
    for (const int64_t bytes : {of.forward, of.input_gradient, of.weight_gradient})
      PENSTOCK_RETURN_IF_ERROR(check_entry("stages", stage, bytes, kMostTensorBytes));
    if (of.forward + of.input_gradient + of.weight_gradient == 0) continue;
    return invalid_argument(
        "memory costs: stages[{}]: expected parts that sum to 0, found {} at F, {} at I and {} at W", stage,
        of.forward, of.input_gradient, of.weight_gradient);
  }
  for (size_t rank = 0; rank < costs.static_bytes.size(); ++rank)
    PENSTOCK_RETURN_IF_ERROR(check_entry("static_bytes", rank, costs.static_bytes[rank], kMostStaticBytes));
  for (size_t stage = 0; stage < costs.message_bytes.size(); ++stage)
    PENSTOCK_RETURN_IF_ERROR(
        check_entry("message_bytes", stage, costs.message_bytes[stage], kMostTensorBytes));
  return ok_status();
}

// Follows one rank; changes come in the order of its program, so that times ascend.
class RankAccount {
 public:
  explicit RankAccount(int64_t static_bytes) {
    use_.static_bytes = static_bytes;
    memory_.points.push_back({0, use_});
    memory_.peak = use_;
  }

  void add_activations(Ticks time, int64_t bytes) { change(time, use_.activations, bytes); }
  void add_boundary(Ticks time, int64_t bytes) { change(time, use_.boundary, bytes); }
  RankMemory take() && { return std::move(memory_); }

 private:
  void change(Ticks time, int64_t& kind, int64_t bytes) {
    if (bytes == 0) return;
    kind += bytes;
    if (use_.total() > memory_.peak.total()) {
      memory_.peak = use_;
      memory_.peak_time = time;
    }
    auto& points = memory_.points;
    if (points.back().time == time) {
      points.back().use = use_;
    } else {
      points.push_back({time, use_});
    }
    const bool is_no_change = points.size() > 1 && points.back().use == points[points.size() - 2].use;
    if (is_no_change) points.pop_back();
  }

  MemoryUse use_;
  RankMemory memory_;
};

class MemoryPlayer {
 public:
  MemoryPlayer(const ComputeProgram& program, const MemoryCosts& costs) : program_(program), costs_(costs) {}

  RankAccount account_of(int rank) const {
    return RankAccount(costs_.static_bytes.empty() ? 0 : costs_.static_bytes[rank]);
  }

  void start(RankAccount& account, const TimedAction& timed) const {
    for_each_half(timed.action, [&](const Work& work) {
      if (work.kind == ActionKind::Forward)
        account.add_activations(timed.start, costs_.stages[work.stage.value].forward);
    });
  }

  void end(RankAccount& account, const TimedAction& timed) const {
    for_each_half(timed.action, [&](const Work& work) {
      const ActivationBytes& of = costs_.stages[work.stage.value];
      int64_t bytes = program_.forward_only ? -of.forward : 0;
      if (starts_backward(work.kind)) bytes += of.input_gradient;
      if (ends_backward(work.kind)) bytes += of.weight_gradient;
      account.add_activations(timed.end, bytes);
    });
  }

  int64_t bytes_of(const Passage& passage) const {
    if (costs_.message_bytes.empty()) return 0;
    return costs_.message_bytes[std::min(passage.source, passage.target).value];
  }

  // Plays the instructions of one rank beside its timed actions. What stands between two computations happens
  // at the end of the first.
  StatusOr<RankMemory> play(const RankProgram& instructions, const RankTimeline& timeline) const {
    RankAccount account = account_of(instructions.rank.value);
    const auto& actions = timeline.actions;
    size_t next = 0;
    Ticks now = 0;
    for (size_t i = 0; i < instructions.instructions.size(); ++i) {
      const Instruction& instruction = instructions.instructions[i];
      if (instruction.kind == InstructionKind::PostReceive)
        account.add_boundary(now, bytes_of(passage_of(instruction)));
      if (instruction.kind == InstructionKind::WaitSend)
        account.add_boundary(now, -bytes_of(passage_of(instruction)));
      if (instruction.kind != InstructionKind::Compute) continue;
      if (next == actions.size() || actions[next].action.work != instruction.work) {
        return invalid_argument("memory: rank {} computes {} where its timeline does not",
                                instructions.rank.value, plan::to_string(instruction.work));
      }
      const TimedAction& timed = actions[next++];
      if (timed.action.overlapped) ++i;  // its second half
      start(account, timed);
      add_boundary(account, timed.start, timed.action, /*outputs=*/true);
      end(account, timed);
      add_boundary(account, timed.end, timed.action, /*outputs=*/false);
      now = timed.end;
    }
    return std::move(account).take();
  }

 private:
  template <typename Visit>
  static void for_each_half(const Action& action, Visit&& visit) {
    visit(action.work);
    if (action.overlapped) visit(*action.overlapped);
  }

  // Outputs take their slots, inputs leave theirs.
  void add_boundary(RankAccount& account, Ticks time, const Action& action, bool outputs) const {
    for_each_half(action, [&](const Work& work) {
      const auto passage = outputs ? outgoing(work, program_.stages()) : incoming(work, program_.stages());
      if (passage) account.add_boundary(time, outputs ? bytes_of(*passage) : -bytes_of(*passage));
    });
  }

  const ComputeProgram& program_;
  const MemoryCosts& costs_;
};

}  // namespace

StatusOr<std::vector<RankMemory>> memory_over_time(const ComputeProgram& program,
                                                   const Simulation& simulation, const MemoryCosts& costs) {
  PENSTOCK_RETURN_IF_ERROR(check_costs(program, costs));
  const MemoryPlayer player(program, costs);
  std::vector<RankMemory> ranks;
  for (int rank = 0; rank < program.ranks; ++rank) {
    RankAccount account = player.account_of(rank);
    for (const TimedAction& timed : simulation.ranks[rank].actions) {
      player.start(account, timed);
      player.end(account, timed);
    }
    ranks.push_back(std::move(account).take());
  }
  return ranks;
}

StatusOr<std::vector<RankMemory>> memory_over_time(const ComputeProgram& program,
                                                   const LoweredProgram& lowered,
                                                   const Simulation& simulation, const MemoryCosts& costs) {
  PENSTOCK_RETURN_IF_ERROR(check_costs(program, costs));
  const MemoryPlayer player(program, costs);
  std::vector<RankMemory> ranks;
  for (const RankProgram& rank : lowered.ranks) {
    PENSTOCK_ASSIGN_OR_RETURN(ranks.emplace_back(), player.play(rank, simulation.ranks[rank.rank.value]));
  }
  return ranks;
}

}  // namespace penstock::plan
