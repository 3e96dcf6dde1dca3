// The simulators against two that move a clock tick by tick and look at every rank and every link, on random
// programs and costs.
#include <gtest/gtest.h>

#include <deque>
#include <map>

#include "plan/schedule/families.h"
#include "plan/simulation/simulate.h"
#include "plan/verification/testing/random_programs.h"

namespace penstock::plan {
namespace {

using judging::draw;
using judging::Random;

Ticks nominal(const SimulationCosts& costs, const Work& work) {
  const StageCosts& of = costs.stages[work.stage.value];
  if (work.kind == ActionKind::Forward) return of.forward;
  if (work.kind == ActionKind::InputGradient) return of.input_gradient;
  if (work.kind == ActionKind::WeightGradient) return of.weight_gradient;
  return of.backward ? *of.backward : of.input_gradient + of.weight_gradient;
}

Ticks nominal(const SimulationCosts& costs, const Action& action) {
  if (!action.overlapped) return nominal(costs, action.work);
  return costs.overlapped_pair > 0 ? costs.overlapped_pair
                                   : nominal(costs, action.work) + nominal(costs, *action.overlapped);
}

// A pipe that one message at a time goes through.
struct Pipe {
  Ticks latency = 0;
  Ticks per_message = 0;
  Bandwidth bandwidth;
  Ticks busy_until = 0;

  Pipe(const SimulationCosts& costs, int source, int target)
      : latency(costs.latency), per_message(costs.ticks_per_message), bandwidth(costs.bandwidth) {
    for (const LinkOverride& link : costs.links) {
      if (link.source.value != source || link.target.value != target) continue;
      latency = link.costs.latency;
      per_message = link.costs.ticks_per_message;
      bandwidth = link.costs.bandwidth;
    }
  }

  Ticks holds(const SimulationCosts& costs, int stage, int next_stage) const {
    const int64_t bytes = costs.message_bytes.empty() ? 0 : costs.message_bytes[std::min(stage, next_stage)];
    Ticks ticks = 0;  // the least in which all bytes pass
    while (bandwidth.bytes > 0 && ticks * bandwidth.bytes < bytes * bandwidth.ticks) ++ticks;
    return per_message + ticks;
  }
};

std::map<std::pair<int, int>, Pipe> pipes_of(const SimulationCosts& costs, int ranks) {
  std::map<std::pair<int, int>, Pipe> pipes;
  for (int source = 0; source < ranks; ++source) {
    for (int target = 0; target < ranks; ++target)
      pipes.emplace(std::pair(source, target), Pipe(costs, source, target));
  }
  return pipes;
}

class TickByTick {
 public:
  TickByTick(const ComputeProgram& program, const SimulationCosts& costs)
      : program_(program), costs_(costs), pipes_(pipes_of(costs, program.ranks)) {}

  // Start times, [rank][position].
  std::vector<std::vector<Ticks>> run() {
    std::vector<std::vector<Ticks>> starts(program_.ranks);
    std::vector<Ticks> busy_until(program_.ranks, 0);
    size_t left = 0;
    for (const auto& actions : program_.actions) left += actions.size();
    for (Ticks now = 0; left > 0; ++now) {
      for (int rank = 0; rank < program_.ranks; ++rank) {
        if (busy_until[rank] == now && !starts[rank].empty()) finish(rank, starts[rank].size() - 1, now);
      }
      for (auto& [ends, queue] : queues_) pump(ends, queue, now);
      for (int rank = 0; rank < program_.ranks; ++rank) {
        const size_t next = starts[rank].size();
        if (busy_until[rank] > now || next == program_.actions[rank].size()) continue;
        const Action& action = program_.actions[rank][next];
        if (!is_there(action.work, now) || (action.overlapped && !is_there(*action.overlapped, now)))
          continue;
        busy_until[rank] = now + nominal(costs_, action);
        starts[rank].push_back(now);
        --left;
      }
    }
    return starts;
  }

 private:
  void finish(int rank, size_t position, Ticks now) {
    const Action& action = program_.actions[rank][position];
    pass_on(rank, action.work, now);
    if (action.overlapped) pass_on(rank, *action.overlapped, now);
  }

  void pass_on(int rank, const Work& work, Ticks now) {
    const int next = work.stage.value + (work.kind == ActionKind::Forward ? 1 : -1);
    if (work.kind == ActionKind::WeightGradient || next < 0 || next == program_.stages()) return;
    const int reader = program_.rank_of(StageIndex(next), work.microbatch).value;
    if (reader == rank) {
      arrived_[work] = now;
    } else {
      queues_[{rank, reader}].push_back(work);
    }
  }

  void pump(const std::pair<int, int>& ends, std::deque<Work>& queue, Ticks now) {
    Pipe& pipe = pipes_.at(ends);
    while (!queue.empty() && pipe.busy_until <= now) {
      const Work work = queue.front();
      queue.pop_front();
      const int next = work.stage.value + (work.kind == ActionKind::Forward ? 1 : -1);
      pipe.busy_until = now + pipe.holds(costs_, work.stage.value, next);
      arrived_[work] = pipe.busy_until + pipe.latency;
    }
  }

  bool has_arrived(int stage, ActionKind kind, const Work& reader, Ticks now) const {
    const auto found = arrived_.find({StageIndex(stage), kind, reader.microbatch});
    return found != arrived_.end() && found->second <= now;
  }

  bool is_there(const Work& work, Ticks now) const {
    const int stage = work.stage.value;
    if (work.kind == ActionKind::WeightGradient) return true;
    if (work.kind == ActionKind::Forward)
      return stage == 0 || has_arrived(stage - 1, ActionKind::Forward, work, now);
    return stage == program_.stages() - 1 || has_arrived(stage + 1, ActionKind::Backward, work, now) ||
           has_arrived(stage + 1, ActionKind::InputGradient, work, now);
  }

  const ComputeProgram& program_;
  const SimulationCosts& costs_;
  std::map<std::pair<int, int>, Pipe> pipes_;
  std::map<std::pair<int, int>, std::deque<Work>> queues_;
  std::map<Work, Ticks> arrived_;
};

// The same for lowered programs: everything that may happen at a tick happens, then every computation goes on
// by what the posts that wait on its rank leave of the device.
class LoweredTickByTick {
 public:
  LoweredTickByTick(const LoweredProgram& program, const SimulationCosts& costs)
      : program_(program),
        costs_(costs),
        pipes_(pipes_of(costs, static_cast<int>(program.ranks.size()))),
        ranks_(program.ranks.size()) {}

  struct Timed {
    Ticks start;
    Ticks end;
    bool operator==(const Timed&) const = default;
  };

  std::vector<std::vector<Timed>> run() {
    for (Ticks now = 0; !is_over(); ++now) {
      for (bool moved = true; moved;) {
        moved = false;
        for (auto& [ends, messages] : messages_) moved |= pump(ends, messages, now);
        for (size_t rank = 0; rank < ranks_.size(); ++rank) moved |= step(static_cast<int>(rank), now);
      }
      for (size_t rank = 0; rank < ranks_.size(); ++rank) work(static_cast<int>(rank), now);
    }
    std::vector<std::vector<Timed>> times;
    for (const Rank& rank : ranks_) times.push_back(rank.actions);
    return times;
  }

 private:
  struct Message {
    bool sent = false;
    bool posted = false;
    bool matched = false;
    Ticks left = 0;
    Ticks arrived = 0;
    int stage = 0;
    int next_stage = 0;
  };
  struct Rank {
    size_t next = 0;
    int64_t work_left = 0;
    std::vector<Timed> actions;
    std::map<std::pair<int, int>, size_t> sent_in;    // (peer, slot): message
    std::map<std::pair<int, int>, size_t> posted_in;  // (peer, slot): message
    std::map<int, size_t> sent;                       // peer: messages
    std::map<int, size_t> posted;
  };

  bool is_over() const {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].next < program_.ranks[rank].instructions.size() || ranks_[rank].work_left > 0)
        return false;
    }
    return true;
  }

  bool pump(const std::pair<int, int>& ends, std::vector<Message>& messages, Ticks now) {
    Pipe& pipe = pipes_.at(ends);
    for (Message& message : messages) {
      if (message.matched) continue;
      if (!message.sent || !message.posted || pipe.busy_until > now) return false;
      message.matched = true;
      pipe.busy_until = message.left = now + pipe.holds(costs_, message.stage, message.next_stage);
      message.arrived = message.left + pipe.latency;
      return true;
    }
    return false;
  }

  Message& message(int source, int target, size_t number) {
    auto& messages = messages_[{source, target}];
    if (messages.size() <= number) messages.resize(number + 1);
    return messages[number];
  }

  bool step(int rank, Ticks now) {
    Rank& state = ranks_[rank];
    const auto& list = program_.ranks[rank].instructions;
    if (state.work_left > 0 || state.next == list.size()) return false;
    const Instruction& at = list[state.next];
    const int peer = at.peer.value;
    const std::pair slot(peer, at.slot);
    if (at.kind == InstructionKind::WaitReceive) {
      const Message& waited = message(peer, rank, state.posted_in[slot]);
      if (!waited.matched || waited.arrived > now) return false;
    } else if (at.kind == InstructionKind::WaitSend) {
      const Message& waited = message(rank, peer, state.sent_in[slot]);
      if (!waited.matched || waited.left > now) return false;
    } else if (at.kind == InstructionKind::Send) {
      state.sent_in[slot] = state.sent[peer]++;
      Message& posted = message(rank, peer, state.sent_in[slot]);
      posted.sent = true;
      posted.stage = at.work.stage.value;
      posted.next_stage = posted.stage + (at.flow == Flow::Activation ? 1 : -1);
    } else if (at.kind == InstructionKind::PostReceive) {
      state.posted_in[slot] = state.posted[peer]++;
      message(peer, rank, state.posted_in[slot]).posted = true;
    } else if (at.kind == InstructionKind::Compute) {
      Action action{at.work, std::nullopt};
      if (at.overlaps_next) action.overlapped = list[++state.next].work;
      state.actions.push_back({now, 0});
      state.work_left = nominal(costs_, action) * std::max(costs_.waits.blocks, 1);
    }
    ++state.next;
    return true;
  }

  void work(int rank, Ticks now) {
    Rank& state = ranks_[rank];
    if (state.work_left == 0) return;
    int waits = 0;
    for (const auto& [ends, messages] : messages_) {
      for (const Message& message : messages) {
        if (ends.first == rank && message.sent && !message.posted) ++waits;
        if (ends.second == rank && message.posted && !message.sent) ++waits;
      }
    }
    const int64_t done = std::max(std::max(costs_.waits.blocks, 1) - waits * costs_.waits.blocks_per_wait, 1);
    state.work_left = std::max<int64_t>(state.work_left - done, 0);
    if (state.work_left == 0) state.actions.back().end = now + 1;
  }

  const LoweredProgram& program_;
  const SimulationCosts& costs_;
  std::map<std::pair<int, int>, Pipe> pipes_;
  std::map<std::pair<int, int>, std::vector<Message>> messages_;  // of each link
  std::vector<Rank> ranks_;
};

SimulationCosts random_costs(Random& random, const ComputeProgram& program) {
  SimulationCosts costs;
  costs.latency = draw(random, 4);
  costs.overlapped_pair = draw(random, 2) * 5;
  for (int stage = 0; stage < program.stages(); ++stage) {
    costs.stages.push_back({1 + draw(random, 5), 1 + draw(random, 5), 1 + draw(random, 5)});
    if (draw(random, 3) == 0) costs.stages.back().backward = 1 + draw(random, 9);
  }
  if (draw(random, 2) == 0) costs.ticks_per_message = draw(random, 3);
  if (draw(random, 2) == 0) {
    for (int stage = 0; stage + 1 < program.stages(); ++stage) costs.message_bytes.push_back(draw(random, 9));
    costs.bandwidth = {draw(random, 4), 1 + draw(random, 2)};
  }
  if (program.ranks > 1 && draw(random, 2) == 0) {
    const int source = draw(random, program.ranks);
    const int target = (source + 1 + draw(random, program.ranks - 1)) % program.ranks;
    costs.links.push_back({RankIndex(source), RankIndex(target), {draw(random, 6), draw(random, 4), {3, 2}}});
  }
  return costs;
}

std::vector<LoweredTickByTick::Timed> times_of(const RankTimeline& timeline) {
  std::vector<LoweredTickByTick::Timed> times;
  for (const TimedAction& timed : timeline.actions) times.push_back({timed.start, timed.end});
  return times;
}

void expect_idle_times_to_add_up(const Simulation& played) {
  for (const RankTimeline& rank : played.ranks) {
    ASSERT_EQ(rank.busy + rank.idle_warm_up + rank.idle_cool_down + rank.idle_dependency + rank.idle_transfer,
              played.makespan);
  }
}

TEST(SimulationAgreement, start_of_every_action_is_that_of_a_clock_moved_tick_by_tick) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    const ComputeProgram program = judging::random_program(random);
    const SimulationCosts costs = random_costs(random, program);
    const std::vector<std::vector<Ticks>> expected = TickByTick(program, costs).run();
    const StatusOr<Simulation> played = simulate(program, costs);
    ASSERT_TRUE(played.ok()) << played.status();
    for (int rank = 0; rank < program.ranks; ++rank) {
      std::vector<Ticks> starts;
      for (const TimedAction& timed : played->ranks[rank].actions) starts.push_back(timed.start);
      ASSERT_EQ(starts, expected[rank]) << "rank " << rank;
    }
    expect_idle_times_to_add_up(*played);
  }
}

TEST(SimulationAgreement, lowered_program_with_slots_and_waits_runs_as_tick_by_tick) {
  Ticks slowed = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    const ComputeProgram program = judging::random_program(random);
    SimulationCosts costs = random_costs(random, program);
    if (draw(random, 4) > 0) costs.waits = {8 + draw(random, 9), draw(random, 5)};
    const Posting posting = draw(random, 2) == 0 ? Posting::Early : Posting::InQueueOrder;
    const LoweredProgram lowered = *lower(program, {1 + draw(random, 3), 1 + draw(random, 2), posting});
    const auto expected = LoweredTickByTick(lowered, costs).run();
    const StatusOr<Simulation> played = simulate(lowered, costs);
    ASSERT_TRUE(played.ok()) << played.status();
    for (int rank = 0; rank < program.ranks; ++rank) {
      ASSERT_EQ(times_of(played->ranks[rank]), expected[rank]) << "rank " << rank;
      slowed += played->ranks[rank].slowed;
    }
    expect_idle_times_to_add_up(*played);
  }
  EXPECT_GT(slowed, 1000);
}

TEST(SimulationAgreement, with_a_slot_for_every_message_and_no_waits_both_simulators_agree) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    const ComputeProgram program = judging::random_program(random);
    const SimulationCosts costs = random_costs(random, program);
    const StatusOr<Simulation> bare = simulate(program, costs);
    const StatusOr<Simulation> lowered = simulate(*lower(program, {1 << 20, 1 << 20}), costs);
    ASSERT_TRUE(bare.ok() && lowered.ok()) << bare.status() << lowered.status();
    const bool waits_for_sends = program.updates > 1;  // before every optimizer step
    if (waits_for_sends) continue;
    for (int rank = 0; rank < program.ranks; ++rank) {
      ASSERT_EQ(times_of(lowered->ranks[rank]), times_of(bare->ranks[rank])) << "rank " << rank;
      EXPECT_EQ(lowered->ranks[rank].idle_transfer, bare->ranks[rank].idle_transfer);
      EXPECT_EQ(lowered->ranks[rank].slowed, 0);
    }
    EXPECT_EQ(lowered->handoffs.local, bare->handoffs.local);
    EXPECT_EQ(lowered->handoffs.hidden, bare->handoffs.hidden);
    EXPECT_EQ(lowered->handoffs.exposed, bare->handoffs.exposed);
    EXPECT_EQ(lowered->transfers_forward, bare->transfers_forward);
  }
}

TEST(SimulationAgreement, program_of_a_large_cluster_is_played) {
  // 262,144 actions: a simulator that looks at every rank for every event would take minutes.
  const ComputeProgram program = *generate({"interleaved-1f1b", 64, 512, 4});
  const StatusOr<Simulation> played = simulate(program, uniform_costs(program.stages(), {1, 1, 1}));
  ASSERT_TRUE(played.ok()) << played.status();
  EXPECT_EQ(played->makespan, 3 * (512 * 4 + 63));
}

}  // namespace
}  // namespace penstock::plan
