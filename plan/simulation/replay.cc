#include "plan/simulation/replay.h"

#include <algorithm>
#include <map>

#include "plan/schedule/dataflow.h"
#include "plan/simulation/internal/check_costs.h"

namespace penstock::plan {
namespace {

constexpr int32_t kNothing = 0, kLatency = 1, kFirstUpdate = 2;  // of times
constexpr int kKinds = 4;
constexpr Ticks kLongestSum = Ticks{1} << 62;

int32_t time_of(int ranks, const Work& work) {
  return kFirstUpdate + ranks + kKinds * work.stage.value + static_cast<int32_t>(work.kind);
}

}  // namespace

// Takes one action of every rank in turn, as far as inputs are there.
class Replay::Builder {
 public:
  explicit Builder(const ComputeProgram& program)
      : program_(program),
        next_(static_cast<size_t>(program.ranks), 0),
        made_(2 * static_cast<size_t>(program.stages()) * static_cast<size_t>(program.total_microbatches()),
              -1) {
    replay_.ranks_ = program.ranks;
    replay_.stages_ = program.stages();
    replay_.updates_ = program.updates;
    for (int rank = 0; rank < program.ranks; ++rank) last_.push_back(1 + rank);
  }

  StatusOr<Replay> build() {
    while (sweep()) {
    }
    for (int rank = 0; rank < program_.ranks; ++rank) {
      const auto& actions = program_.actions[at(rank)];
      if (next_[at(rank)] == actions.size()) continue;
      return failed_precondition("the program stops on rank {} before {} at position {}; verify says why",
                                 rank, to_string(actions[next_[at(rank)]]), next_[at(rank)]);
    }
    count();
    return std::move(replay_);
  }

 private:
  static size_t at(int index) { return static_cast<size_t>(index); }

  bool sweep() {
    bool is_any = false;
    for (int rank = 0; rank < program_.ranks; ++rank) {
      const auto& actions = program_.actions[at(rank)];
      if (next_[at(rank)] == actions.size() || !is_ready(actions[next_[at(rank)]])) continue;
      add(rank, actions[next_[at(rank)]++]);
      is_any = true;
    }
    return is_any;
  }

  // Where the end of a passage's producer stands.
  int32_t& made(const Passage& passage) {
    const size_t row = static_cast<size_t>(passage.flow) * at(program_.stages()) + at(passage.source.value);
    return made_[row * at(program_.total_microbatches()) + at(passage.microbatch.value)];
  }

  bool is_made(const Work& work) {
    const auto passage = incoming(work, program_.stages());
    return !passage || made(*passage) >= 0;
  }
  bool is_ready(const Action& action) {
    return is_made(action.work) && (!action.overlapped || is_made(*action.overlapped));
  }

  // Both halves of a pair wait for both inputs, and end together: an action of no time waits for the first one.
  void add(int rank, const Action& action) {
    const int32_t first = time_of(program_.ranks, action.work);
    if (!action.overlapped) {
      add_moment(rank, action.work, first);
    } else {
      add_moment(rank, action.work, kNothing);
      add_moment(rank, *action.overlapped, time_of_pair(first, time_of(program_.ranks, *action.overlapped)));
      leave(*action.overlapped, rank);
    }
    leave(action.work, rank);
  }

  void add_moment(int rank, const Work& work, int32_t time) {
    Moment moment{last_[at(rank)], 0, time, kNothing};
    if (const auto passage = incoming(work, program_.stages())) {
      moment.producer = made(*passage);
      const bool is_remote = program_.rank_of(passage->source, passage->microbatch) != RankIndex(rank);
      moment.passage = is_remote ? kLatency : kNothing;
    }
    replay_.moments_.push_back(moment);
    last_[at(rank)] = program_.ranks + static_cast<int32_t>(replay_.moments_.size());
  }

  void leave(const Work& work, int rank) {
    if (const auto passage = outgoing(work, program_.stages())) made(*passage) = last_[at(rank)];
  }

  int32_t time_of_pair(int32_t first, int32_t second) {
    const auto [entry, is_new] = pair_of_.try_emplace({first, second}, 0);
    if (is_new) {
      entry->second = kFirstUpdate + program_.ranks + kKinds * program_.stages() +
                      static_cast<int32_t>(replay_.pairs_.size());
      replay_.pairs_.emplace_back(first, second);
    }
    return entry->second;
  }

  void count() {
    Replay& made = replay_;
    const size_t times = at(kFirstUpdate + made.ranks_ + kKinds * made.stages_) + made.pairs_.size();
    made.counts_.assign(times, 0);
    made.times_.assign(times, 0);
    made.ends_.assign(1 + at(made.ranks_) + made.moments_.size(), 0);
    for (int rank = 0; rank < made.ranks_; ++rank) made.counts_[at(kFirstUpdate + rank)] = 1;
    for (const Moment& moment : made.moments_) {
      ++made.counts_[at(moment.time)];
      ++made.counts_[at(moment.passage)];
    }
  }

  const ComputeProgram& program_;
  Replay replay_;
  std::vector<size_t> next_;   // [rank]: action
  std::vector<int32_t> last_;  // [rank]: end of its last action
  std::vector<int32_t> made_;  // [flow, source stage, microbatch]: end of the producer; -1 until then
  std::map<std::pair<int32_t, int32_t>, int32_t> pair_of_;
};

StatusOr<Replay> Replay::of(const ComputeProgram& program) {
  return Builder(program).build();
}

Status Replay::check_shape(const SimulationCosts& costs) const {
  PENSTOCK_RETURN_IF_ERROR(
      internal::check_counts({.ranks = ranks_, .stages = stages_, .updates = updates_}, costs));
  if (costs.ticks_per_message != 0 || costs.bandwidth.bytes != 0 || !costs.links.empty()) {
    return invalid_argument("costs: links: a replay knows their latency alone");
  }
  return ok_status();
}

Status Replay::set_costs(const SimulationCosts& costs) {
  PENSTOCK_RETURN_IF_ERROR(check_shape(costs));
  times_[kLatency] = costs.latency;
  Ticks* time = &times_[kFirstUpdate];
  for (int rank = 0; rank < ranks_; ++rank)
    *time++ = costs.updates.empty() ? 0 : costs.updates[static_cast<size_t>(rank)];
  for (const StageCosts& stage : costs.stages) {
    *time++ = stage.forward;
    *time++ = stage.fused_backward();
    *time++ = stage.input_gradient;
    *time++ = stage.weight_gradient;
  }
  for (const auto& [first, second] : pairs_) {
    const Ticks both = times_[static_cast<size_t>(first)] + times_[static_cast<size_t>(second)];
    *time++ = costs.overlapped_pair > 0 ? costs.overlapped_pair : both;
  }
  return add_up();
}

Status Replay::add_up() {
  __int128 sum = 0;
  for (size_t i = 0; i < times_.size(); ++i) {
    if (times_[i] < 0) return invalid_argument("costs: expected 0 or more, found {}", times_[i]);
    sum += static_cast<__int128>(times_[i]) * counts_[i];
  }
  if (sum > kLongestSum)
    return invalid_argument("costs: a step of {} actions takes longer than can be counted", actions());
  busy_ = static_cast<Ticks>(sum) - times_[kLatency] * counts_[kLatency];
  return ok_status();
}

Ticks Replay::play() {
  Ticks last = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Ticks update = times_[static_cast<size_t>(kFirstUpdate + rank)];
    ends_[1 + static_cast<size_t>(rank)] = update;
    last = std::max(last, update);
  }
  const Ticks* times = times_.data();
  Ticks* ends = ends_.data();
  Ticks* end = ends + 1 + ranks_;
  for (const Moment& moment : moments_) {
    const Ticks arrived = ends[moment.producer] + times[moment.passage];
    *end = std::max(ends[moment.before], arrived) + times[moment.time];
    last = std::max(last, *end++);
  }
  return last;
}

Replay::Chain Replay::slowest_chain() const {
  std::vector<int32_t> counts(times_.size(), 0);
  auto place = static_cast<int32_t>(std::max_element(ends_.begin(), ends_.end()) - ends_.begin());
  while (place > ranks_) {
    const Moment& moment = moments_[static_cast<size_t>(place - ranks_ - 1)];
    ++counts[static_cast<size_t>(moment.time)];
    const Ticks start = ends_[static_cast<size_t>(place)] - times_[static_cast<size_t>(moment.time)];
    const bool waits_for_rank = ends_[static_cast<size_t>(moment.before)] == start;
    if (!waits_for_rank) ++counts[static_cast<size_t>(moment.passage)];
    place = waits_for_rank ? moment.before : moment.producer;
  }
  if (place > 0) ++counts[static_cast<size_t>(kFirstUpdate + place - 1)];
  Chain chain;
  for (size_t time = 1; time < counts.size(); ++time) {
    if (counts[time] > 0) chain.parts.push_back({static_cast<int32_t>(time), counts[time]});
  }
  return chain;
}

}  // namespace penstock::plan
