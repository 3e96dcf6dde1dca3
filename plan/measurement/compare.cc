#include "plan/measurement/compare.h"

#include <map>
#include <optional>

#include "plan/schedule/dataflow.h"

namespace penstock::plan {
namespace {

struct Produced {
  size_t rank = 0;
  Ticks end = 0;
};

enum class Class : uint8_t { Local, Hidden, Exposed };

struct HandOff {
  Passage passage;
  Class simulated = Class::Local;
};

template <typename Visit>
void for_each_work(const TimedAction& timed, Visit&& visit) {
  visit(timed.action.work);
  if (timed.action.overlapped) visit(*timed.action.overlapped);
}

// Every hand-off with its class, as simulate.h defines them: hidden is one whose receiver starts another action between
// the producer's end and the consumer's start. The action before the consumer is the last that could.
std::vector<HandOff> hand_offs_of(const Simulation& simulation, int stages) {
  std::map<Passage, Produced> produced;
  for (size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    for (const TimedAction& timed : simulation.ranks[rank].actions) {
      for_each_work(timed, [&](const Work& work) {
        if (const auto passage = outgoing(work, stages)) produced[*passage] = {rank, timed.end};
      });
    }
  }
  std::vector<HandOff> result;
  for (size_t rank = 0; rank < simulation.ranks.size(); ++rank) {
    const std::vector<TimedAction>& actions = simulation.ranks[rank].actions;
    for (size_t i = 0; i < actions.size(); ++i) {
      for_each_work(actions[i], [&](const Work& work) {
        const auto passage = incoming(work, stages);
        if (!passage) return;
        const Produced& from = produced[*passage];
        const bool hidden = i > 0 && actions[i - 1].start >= from.end;
        result.push_back({*passage, from.rank == rank ? Class::Local
                                    : hidden          ? Class::Hidden
                                                      : Class::Exposed});
      });
    }
  }
  return result;
}

using Waits = std::map<Passage, int64_t>;  // how long each was

Waits waits_of(const MeasuredStep& step) {
  Waits waits;
  for (const MeasuredRank& rank : step.ranks) {
    for (const MeasuredWait& wait : rank.waits) waits[wait.passage] = wait.end_ns - wait.start_ns;
  }
  return waits;
}

Status count(const HandOff& hand_off, const Waits& waits, const ComparisonOptions& options,
             Comparison& comparison) {
  if (hand_off.simulated == Class::Local) {
    ++comparison.local.count;
    return ok_status();
  }
  OverlapAchieved& overlap = hand_off.simulated == Class::Hidden ? comparison.hidden : comparison.exposed;
  const auto wait = waits.find(hand_off.passage);
  if (wait == waits.end()) {
    return invalid_argument(
        "measured step: nothing says how long stage {} waited for microbatch {} of stage {}",
        hand_off.passage.target.value, hand_off.passage.microbatch.value, hand_off.passage.source.value);
  }
  ++overlap.count;
  if (wait->second <= options.noticed_wait_ns) {
    ++overlap.hidden;
  } else {
    ++overlap.exposed;
    overlap.exposed_ns += wait->second;
  }
  return ok_status();
}

double idle_share(int64_t busy, int64_t makespan) {
  return makespan == 0 ? 0 : 1 - static_cast<double>(busy) / static_cast<double>(makespan);
}

ComparedRank compare_rank(const MeasuredRank& rank, const RankTimeline& simulated, const Comparison& whole) {
  ComparedRank result;
  for (const MeasuredWork& work : rank.works) {
    result.busy_ns += work.end_ns - work.start_ns;
    result.cpu_ns += work.cpu_ns;
  }
  result.bubble_measured = idle_share(result.busy_ns, whole.measured_ns);
  result.bubble_simulated = idle_share(simulated.busy, whole.simulated_ns);
  return result;
}

}  // namespace

StatusOr<Comparison> compare(const ComputeProgram& program, const MeasuredStep& step,
                             const ComparisonOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(check_measured(program, step));
  Comparison result;
  PENSTOCK_ASSIGN_OR_RETURN(result.simulation, simulate(program, mean_costs(program, step)));
  result.measured_ns = makespan_ns(step);
  result.simulated_ns = result.simulation.makespan;
  result.ratio = result.simulated_ns == 0
                     ? 1
                     : static_cast<double>(result.measured_ns) / static_cast<double>(result.simulated_ns);
  for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
    result.ranks.push_back(compare_rank(step.ranks[rank], result.simulation.ranks[rank], result));
  }
  const Waits waits = waits_of(step);
  for (const HandOff& hand_off : hand_offs_of(result.simulation, program.stages())) {
    PENSTOCK_RETURN_IF_ERROR(count(hand_off, waits, options, result));
  }
  return result;
}

}  // namespace penstock::plan
