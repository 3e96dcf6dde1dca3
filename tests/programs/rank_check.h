// What one rank's lowered program says about itself, from sets and intervals of positions. Part of the checker.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/schedule/lowered.h"

namespace penstock::checking {

using plan::ActionKind;
using plan::Flow;
using plan::Instruction;
using plan::InstructionKind;
using plan::RankProgram;
using plan::Work;

struct Tensor {
  int source = 0;  // stages
  int target = 0;
  int microbatch = 0;
  Flow flow = Flow::Activation;

  auto operator<=>(const Tensor&) const = default;
};

inline bool is_valid_flow(const Instruction& at) {
  return at.flow == Flow::Activation || at.flow == Flow::Gradient;
}

inline Tensor tensor_of(const Instruction& at) {
  const int named = at.work.stage.value;
  const int forth = at.flow == Flow::Activation ? 1 : -1;
  const bool receives = at.kind == InstructionKind::PostReceive || at.kind == InstructionKind::WaitReceive;
  return receives ? Tensor{named - forth, named, at.work.microbatch.value, at.flow}
                  : Tensor{named, named + forth, at.work.microbatch.value, at.flow};
}

inline std::optional<Tensor> input_of(const Work& work, int stages) {
  const int stage = work.stage.value;
  if (work.kind == ActionKind::Forward) {
    if (stage == 0) return std::nullopt;
    return Tensor{stage - 1, stage, work.microbatch.value, Flow::Activation};
  }
  if (work.kind == ActionKind::WeightGradient || stage == stages - 1) return std::nullopt;
  return Tensor{stage + 1, stage, work.microbatch.value, Flow::Gradient};
}

inline std::optional<Tensor> output_of(const Work& work, int stages) {
  const int stage = work.stage.value;
  if (work.kind == ActionKind::Forward) {
    if (stage == stages - 1) return std::nullopt;
    return Tensor{stage, stage + 1, work.microbatch.value, Flow::Activation};
  }
  if (work.kind == ActionKind::WeightGradient || stage == 0) return std::nullopt;
  return Tensor{stage, stage - 1, work.microbatch.value, Flow::Gradient};
}

// Times from `first` to `last`, both included, in which a slot holds something.
class Intervals {
 public:
  void add(const std::tuple<int, int, int>& slot, int first, int last) {
    of_slot_[slot].emplace_back(first, last);
  }

  bool are_apart() const {
    for (auto [slot, intervals] : of_slot_) {
      std::sort(intervals.begin(), intervals.end());
      for (size_t i = 1; i < intervals.size(); ++i) {
        if (intervals[i].first <= intervals[i - 1].second) return false;
      }
    }
    return true;
  }

 private:
  std::map<std::tuple<int, int, int>, std::vector<std::pair<int, int>>> of_slot_;
};

// One rank. Positions are those in its list; a pair stands at its first and ends at its second half.
class RankCheck {
 public:
  explicit RankCheck(const RankProgram& program) : program_(program) {}

  std::string run() {
    using Rule = bool (RankCheck::*)();
    const std::pair<Rule, const char*> rules[] = {
        {&RankCheck::values_exist, "a value out of range"},
        {&RankCheck::computations_are_once, "a computation twice, alone or in half a pair"},
        {&RankCheck::every_forward_has_its_backward, "a forward without its backward, or out of order"},
        {&RankCheck::outputs_leave_at_once, "an output that does not leave behind its producer"},
        {&RankCheck::inputs_are_there, "an input that is not there"},
        {&RankCheck::leases_hold, "an activation slot"},
        {&RankCheck::slots_have_room_for_halves, "slots for another form of the backward"},
        {&RankCheck::transfer_slots_are_apart, "a transfer slot"},
        {&RankCheck::sums_and_steps_stand_right, "a reduction or step out of place"},
        {&RankCheck::validation_stands_right, "a validation out of place"},
    };
    for (const auto& [rule, name] : rules) {
      if (!(this->*rule)()) return name;
    }
    return "";
  }

  // Position of its ValidateStep; nothing with a barrier.
  std::optional<int> validation() const {
    for (int i = 0; i < size(); ++i) {
      if (list()[i].kind == InstructionKind::ValidateStep) return i;
    }
    return std::nullopt;
  }

  bool follows_updates(bool is_double_buffered) const {
    return follows([&](const Computation& at, int steps) {
      const int update = at.work.microbatch.value / program_.microbatches;
      const int wanted = is_double_buffered ? std::max(update - 1, 0) : update;
      const bool exists = steps == wanted || (is_double_buffered && steps == wanted + 1);
      return at.version == wanted && exists;
    });
  }

  bool follows_stash() const {
    return follows([&](const Computation& at, int steps) {
      if (at.work.kind == ActionKind::Forward) return at.version == steps;
      return at.version == computations_.at({at.work.stage, ActionKind::Forward, at.work.microbatch}).version;
    });
  }

 private:
  struct Computation {
    Work work;
    int start = 0;
    int end = 0;
    int version = 0;
  };

  const std::vector<Instruction>& list() const { return program_.instructions; }
  int size() const { return static_cast<int>(list().size()); }
  int total() const { return program_.microbatches * program_.updates; }
  bool owns(int stage) const {
    return std::any_of(program_.buffers.begin(), program_.buffers.end(),
                       [&](const plan::StageBuffers& buffers) { return buffers.stage.value == stage; });
  }

  bool values_exist() {
    for (const Instruction& at : list()) {
      if (at.kind > InstructionKind::ValidateStep) return false;
      if (at.kind == InstructionKind::OptimizerStep || at.kind == InstructionKind::ValidateStep) continue;
      if (!owns(at.work.stage.value)) return false;
      if (at.kind == InstructionKind::ReduceGradients) continue;
      if (at.work.microbatch.value < 0 || at.work.microbatch.value >= total() || !is_valid_flow(at))
        return false;
      if (at.kind == InstructionKind::Compute && at.work.kind > ActionKind::WeightGradient) return false;
    }
    return true;
  }

  bool computations_are_once() {
    for (int i = 0; i < size(); ++i) {
      if (list()[i].kind != InstructionKind::Compute) continue;
      const bool is_pair = list()[i].overlaps_next;
      const int end = i + (is_pair ? 1 : 0);
      if (end == size() || list()[end].kind != InstructionKind::Compute) return false;
      if (is_pair && list()[end].overlaps_next) return false;
      for (int half = i; half <= end; ++half) {
        const Computation computation{list()[half].work, i, end, list()[half].weight_version};
        if (!computations_.emplace(computation.work, computation).second) return false;
      }
      i = end;
    }
    return true;
  }

  const Computation* find(const Work& like, ActionKind kind) const {
    const auto found = computations_.find({like.stage, kind, like.microbatch});
    return found == computations_.end() ? nullptr : &found->second;
  }

  // The last computation that needs what the forward keeps.
  const Computation& last_of(const Work& work) const {
    if (program_.forward_only) return *find(work, ActionKind::Forward);
    const Computation* fused = find(work, ActionKind::Backward);
    return fused != nullptr ? *fused : *find(work, ActionKind::WeightGradient);
  }

  bool every_forward_has_its_backward() {
    for (const auto& [work, computation] : computations_) {
      const Computation* forward = find(work, ActionKind::Forward);
      const Computation* fused = find(work, ActionKind::Backward);
      const Computation* input = find(work, ActionKind::InputGradient);
      const Computation* weight = find(work, ActionKind::WeightGradient);
      if (forward == nullptr) return false;
      if (program_.forward_only) {
        if (fused != nullptr || input != nullptr || weight != nullptr) return false;
        continue;
      }
      const bool is_split = input != nullptr && weight != nullptr;
      if (fused != nullptr ? input != nullptr || weight != nullptr : !is_split) return false;
      const Computation& first = fused != nullptr ? *fused : *input;
      if (first.start <= forward->end || (is_split && weight->start <= input->end)) return false;
    }
    return true;
  }

  bool outputs_leave_at_once() {
    std::vector<bool> is_behind_its_producer(list().size(), false);
    std::set<int> starts;
    for (const auto& [work, computation] : computations_) starts.insert(computation.start);
    for (const int start : starts) {
      std::multiset<Tensor> outputs;
      int next = start + (list()[start].overlaps_next ? 2 : 1);
      for (int half = start; half < next; ++half) {
        if (const auto output = output_of(list()[half].work, program_.stages)) outputs.insert(*output);
      }
      for (; next < size() && is_output(list()[next]); ++next) {
        const auto found = outputs.find(tensor_of(list()[next]));
        if (found == outputs.end()) return false;
        outputs.erase(found);
        is_behind_its_producer[next] = true;
      }
      if (!outputs.empty()) return false;
    }
    for (int i = 0; i < size(); ++i) {
      if (is_output(list()[i]) && !is_behind_its_producer[i]) return false;
    }
    return true;
  }

  static bool is_output(const Instruction& at) {
    return at.kind == InstructionKind::Send || at.kind == InstructionKind::HandOff;
  }

  // Every tensor that comes in has one reader, behind its wait or hand-off; every reader its tensor.
  bool inputs_are_there() {
    std::map<Tensor, Computation> readers;
    for (const auto& [work, computation] : computations_) {
      if (const auto input = input_of(work, program_.stages)) readers.emplace(*input, computation);
    }
    std::set<Tensor> there;
    for (int i = 0; i < size(); ++i) {
      const Instruction& at = list()[i];
      const bool is_hand_off = at.kind == InstructionKind::HandOff;
      if (at.kind == InstructionKind::WaitReceive && !there.contains(tensor_of(at))) return false;
      if (!is_hand_off && at.kind != InstructionKind::PostReceive) continue;
      const Tensor tensor = tensor_of(at);
      const auto reader = readers.find(tensor);
      if (reader == readers.end() || !there.insert(tensor).second) return false;
      if (is_hand_off ? i >= reader->second.start : !is_waited_for(at, i, reader->second.start)) return false;
      const int peer = is_hand_off ? program_.rank.value : at.peer.value;
      receives_.add({peer, at.slot, 0}, i, last_output_of(reader->second));
      if (!slot_exists(at.slot, peer, program_.rank.value, false)) return false;
    }
    return there.size() == readers.size();
  }

  // A reader still reads while it writes its outputs: those must not go to the same slot.
  int last_output_of(const Computation& computation) const {
    int last = computation.end;
    while (last + 1 < size() && is_output(list()[last + 1])) ++last;
    return last;
  }

  // By one wait, of the same slot.
  bool is_waited_for(const Instruction& post, int from, int to) const {
    int waits = 0;
    for (int i = 0; i < size(); ++i) {
      const Instruction& at = list()[i];
      if (at.kind != InstructionKind::WaitReceive || tensor_of(at) != tensor_of(post)) continue;
      if (i < from || i >= to || at.peer != post.peer || at.slot != post.slot) return false;
      ++waits;
    }
    return waits == 1;
  }

  bool slot_exists(int slot, int source, int target, bool at_source) const {
    for (const plan::Link& link : program_.links) {
      if (link.source.value == source && link.target.value == target)
        return slot >= 0 && slot < (at_source ? link.send_slots : link.receive_slots);
    }
    return false;
  }

  bool leases_hold() {
    std::map<std::pair<int, int>, std::pair<int, int>> leases;  // (stage, microbatch): position, slot
    std::set<std::pair<int, int>> released;
    Intervals intervals;
    for (int i = 0; i < size(); ++i) {
      const Instruction& at = list()[i];
      const std::pair key(at.work.stage.value, at.work.microbatch.value);
      if (at.kind == InstructionKind::AcquireActivation) {
        const Computation* forward = find(at.work, ActionKind::Forward);
        if (forward == nullptr || forward->start < i || !leases.emplace(key, std::pair(i, at.slot)).second)
          return false;
        if (at.slot < 0 || at.slot >= activation_slots_of(key.first)) return false;
      }
      if (at.kind != InstructionKind::ReleaseActivation) continue;
      const auto lease = leases.find(key);
      if (lease == leases.end() || lease->second.second != at.slot || !released.insert(key).second)
        return false;
      if (i < last_of(at.work).end) return false;
      intervals.add({key.first, at.slot, 0}, lease->second.first, i);
    }
    std::set<std::pair<int, int>> needed;
    for (const auto& [work, computation] : computations_)
      needed.emplace(work.stage.value, work.microbatch.value);
    return intervals.are_apart() && released.size() == leases.size() && leases.size() == needed.size();
  }

  // A stage says that it splits backwards if and only if one of its computations is a half.
  bool slots_have_room_for_halves() {
    std::set<int> splitting;
    for (const auto& [work, computation] : computations_) {
      const bool is_half = work.kind == ActionKind::InputGradient || work.kind == ActionKind::WeightGradient;
      if (is_half) splitting.insert(work.stage.value);
    }
    return std::all_of(program_.buffers.begin(), program_.buffers.end(), [&](const auto& buffers) {
      return (buffers.backward == plan::BackwardForm::Split) == splitting.contains(buffers.stage.value);
    });
  }

  int activation_slots_of(int stage) const {
    for (const plan::StageBuffers& buffers : program_.buffers) {
      if (buffers.stage.value == stage) return buffers.activation_slots;
    }
    return 0;
  }

  // A send slot is held from its producer's start, which writes it, until the wait for the send.
  bool transfer_slots_are_apart() {
    Intervals sends;
    int waits = 0;
    int waited_for = 0;
    for (int i = 0; i < size(); ++i) {
      const Instruction& at = list()[i];
      waits += at.kind == InstructionKind::WaitSend ? 1 : 0;
      if (at.kind != InstructionKind::Send) continue;
      if (!slot_exists(at.slot, program_.rank.value, at.peer.value, true)) return false;
      const int wait = wait_for(at, i);
      if (wait < 0) return false;
      ++waited_for;
      sends.add({at.peer.value, at.slot, 0}, i, wait);
      for (int between = i; between < wait; ++between) {
        const Instruction& passed = list()[between];
        const bool is_last = passed.update + 1 == program_.updates;
        if (passed.kind == InstructionKind::OptimizerStep && is_last) return false;
      }
    }
    return waits == waited_for && sends.are_apart() && receives_.are_apart();
  }

  int wait_for(const Instruction& send, int from) const {
    for (int i = from + 1; i < size(); ++i) {
      const Instruction& at = list()[i];
      const bool is_it = at.kind == InstructionKind::WaitSend && at.peer == send.peer && at.slot == send.slot;
      if (is_it) return tensor_of(at) == tensor_of(send) ? i : -1;
    }
    return -1;
  }

  bool sums_and_steps_stand_right() {
    std::map<std::pair<int, int>, int> sums;  // (stage, update): position
    int steps = 0;
    for (int i = 0; i < size(); ++i) {
      const Instruction& at = list()[i];
      if (at.kind == InstructionKind::ReduceGradients) {
        const bool exists = at.update >= 0 && at.update < program_.updates && !program_.forward_only;
        if (!exists || !sums.emplace(std::pair(at.work.stage.value, at.update), i).second) return false;
      }
      if (at.kind != InstructionKind::OptimizerStep) continue;
      if (program_.forward_only || at.update != steps++ || steps > program_.updates) return false;
      for (const plan::StageBuffers& buffers : program_.buffers) {
        if (!sums.contains({buffers.stage.value, at.update})) return false;
      }
      steps_.push_back(i);
    }
    if (program_.forward_only) return true;
    if (steps != program_.updates) return false;
    for (const auto& [work, computation] : computations_) {
      const bool ends = work.kind == ActionKind::Backward || work.kind == ActionKind::WeightGradient;
      const int update = work.microbatch.value / program_.microbatches;
      if (ends && sums.at({work.stage.value, update}) < computation.end) return false;
    }
    return true;
  }

  // One, before every computation that adds to gradients, on the only rank of its only stage; and no message is
  // expected before it that the links do not speak of.
  bool validation_stands_right() {
    const std::optional<int> place = validation();
    std::map<std::pair<int, int>, int> before;  // link: messages
    for (int i = 0; i < size(); ++i) {
      const Instruction& at = list()[i];
      if (at.kind == InstructionKind::ValidateStep && i != place) return false;
      if (!place || i > *place) continue;
      if (at.kind == InstructionKind::Send) ++before[{program_.rank.value, at.peer.value}];
      if (at.kind == InstructionKind::PostReceive) ++before[{at.peer.value, program_.rank.value}];
    }
    for (const plan::Link& link : program_.links) {
      const int seen = before[{link.source.value, link.target.value}];
      const bool sends = link.source == program_.rank;
      if (sends ? link.provisional_messages != seen : link.provisional_messages < seen) return false;
      if (link.provisional_messages > (place ? link.messages : 0)) return false;
    }
    if (!place) return true;
    const bool is_own =
        program_.buffers.size() == 1 && program_.buffers[0].stage.value == program_.rank.value;
    if (!is_own || program_.stages != program_.ranks || program_.updates != 1 || program_.forward_only)
      return false;
    const auto adds = [&](const Work& work) {
      return work.kind != ActionKind::Forward || work.stage.value == program_.stages - 1;
    };
    return std::none_of(computations_.begin(), computations_.end(),
                        [&](const auto& entry) { return adds(entry.first) && entry.second.start < *place; });
  }

  bool follows(const std::function<bool(const Computation&, int)>& rule) const {
    return std::all_of(computations_.begin(), computations_.end(), [&](const auto& entry) {
      const auto steps = std::lower_bound(steps_.begin(), steps_.end(), entry.second.start) - steps_.begin();
      return rule(entry.second, static_cast<int>(steps));
    });
  }

  const RankProgram& program_;
  std::map<Work, Computation> computations_;
  Intervals receives_;  // and hand-offs: of a link to itself
  std::vector<int> steps_;
};

}  // namespace penstock::checking
