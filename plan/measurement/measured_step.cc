#include "plan/measurement/measured_step.h"

#include <algorithm>
#include <array>
#include <limits>

namespace penstock::plan {
namespace {

std::vector<Work> works_of(const std::vector<Action>& actions) {
  std::vector<Work> works;
  for (const Action& action : actions) {
    works.push_back(action.work);
    if (action.overlapped) works.push_back(*action.overlapped);
  }
  return works;
}

Status check_rank(int rank, const std::vector<Work>& expected, const std::vector<MeasuredWork>& found) {
  for (size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
    const MeasuredWork& measured = found[i];
    if (measured.work != expected[i]) {
      return invalid_argument("measured rank {}, work {}: expected {}, found {}", rank, i,
                              to_string(expected[i]), to_string(measured.work));
    }
    if (measured.start_ns > measured.end_ns || measured.cpu_ns < 0) {
      return invalid_argument("measured rank {}, work {}: {} from {} to {} ns with {} ns of CPU time", rank,
                              i, to_string(measured.work), measured.start_ns, measured.end_ns,
                              measured.cpu_ns);
    }
  }
  if (expected.size() == found.size()) return ok_status();
  return invalid_argument("measured rank {}: expected {} works, found {}", rank, expected.size(),
                          found.size());
}

struct Mean {
  int64_t sum = 0;
  int64_t count = 0;
  Ticks value() const { return count == 0 ? 0 : (sum + count / 2) / count; }
};

}  // namespace

Status check_measured(const ComputeProgram& program, const MeasuredStep& step) {
  if (step.ranks.size() != program.actions.size()) {
    return invalid_argument("measured step: expected {} ranks, found {}", program.actions.size(),
                            step.ranks.size());
  }
  for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
    PENSTOCK_RETURN_IF_ERROR(
        check_rank(static_cast<int>(rank), works_of(program.actions[rank]), step.ranks[rank].works));
  }
  return ok_status();
}

int64_t makespan_ns(const MeasuredStep& step) {
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = std::numeric_limits<int64_t>::min();
  for (const MeasuredRank& rank : step.ranks) {
    for (const MeasuredWork& work : rank.works) {
      first = std::min(first, work.start_ns);
      last = std::max(last, work.end_ns);
    }
  }
  return std::max<int64_t>(0, first > last ? 0 : last - first);
}

SimulationCosts mean_costs(const ComputeProgram& program, const MeasuredStep& step) {
  std::vector<std::array<Mean, 4>> means(static_cast<size_t>(program.stages()));  // [stage][kind]
  for (const MeasuredRank& rank : step.ranks) {
    for (const MeasuredWork& work : rank.works) {
      Mean& mean = means.at(static_cast<size_t>(work.work.stage.value))[static_cast<size_t>(work.work.kind)];
      mean.sum += work.end_ns - work.start_ns;
      ++mean.count;
    }
  }
  SimulationCosts costs = uniform_costs(program.stages(), {});
  for (size_t stage = 0; stage < means.size(); ++stage) {
    const auto of = [&](ActionKind kind) { return means[stage][static_cast<size_t>(kind)].value(); };
    costs.stages[stage] = {.forward = of(ActionKind::Forward),
                           .input_gradient = of(ActionKind::InputGradient),
                           .weight_gradient = of(ActionKind::WeightGradient),
                           .backward = of(ActionKind::Backward)};
  }
  return costs;
}

Simulation as_timeline(const MeasuredStep& step) {
  Simulation timeline;
  for (const MeasuredRank& rank : step.ranks) {
    RankTimeline& drawn = timeline.ranks.emplace_back();
    for (const MeasuredWork& work : rank.works) {
      drawn.actions.push_back({Action{work.work, std::nullopt}, work.start_ns, work.end_ns});
      drawn.busy += work.end_ns - work.start_ns;
    }
  }
  timeline.makespan = makespan_ns(step);
  return timeline;
}

}  // namespace penstock::plan
