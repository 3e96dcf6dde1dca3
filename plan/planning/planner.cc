#include "plan/planning/planner.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/planning/internal/playable.h"
#include "plan/planning/internal/split_player.h"
#include "plan/planning/internal/split_search.h"
#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

constexpr int kCurvePoints = 8;
constexpr int kCurvePointsOfSchedule = 4;
constexpr int64_t kRankBytesMax = int64_t{1} << 50;
constexpr int kLatencyNsMax = 1'000'000'000;
constexpr int64_t kUpdateNsMax = 1'000'000'000'000'000;

size_t at(int index) {
  return static_cast<size_t>(index);
}

std::string limit_of(const Playable& playable, const PlannedStep& step,
                     const std::optional<OversizedLayer>& oversized) {
  const Partition& plan = step.partition;
  const auto slowest = std::max_element(plan.rank_ns.begin(), plan.rank_ns.end()) - plan.rank_ns.begin();
  const double mean =
      static_cast<double>(std::accumulate(plan.rank_ns.begin(), plan.rank_ns.end(), int64_t{0})) /
      static_cast<double>(plan.rank_ns.size());
  const double above = mean > 0 ? static_cast<double>(plan.slowest_ns) / mean - 1 : 0;
  if (oversized && plan.slowest_ns == oversized->time_ns) {
    return fmt::format("{} alone", playable.partition.layers[at(oversized->layer)].name);
  }
  if (!plan.recomputed.empty()) return "memory: layers recompute";
  if (above > 0.05) return fmt::format("rank {}, {:.0f} % above the mean", slowest, 100 * above);
  return step.bubble_fraction > 0.05 ? "the bubble" : "the work itself";
}

bool is_better(const PlannedStep& a, const PlannedStep& b) {
  if (a.step_ns != b.step_ns) return a.step_ns < b.step_ns;
  return a.partition.peak_bytes < b.partition.peak_bytes;
}

bool is_over(const PlanningRequest& request) {
  return request.keep_going && !request.keep_going();
}

// The current split stays where no other is faster.
std::vector<std::vector<int>> starts_of(const PlanningRequest& request, const Playable& playable,
                                        const PartitionAnswer& answer) {
  const int layers = static_cast<int>(playable.partition.layers.size());
  const int stages = playable.program.stages();
  std::vector<std::vector<int>> starts;
  if (!request.current_split.empty() && playable.choice == request.asked)
    starts.push_back(request.current_split);
  if (answer.feasible) starts.push_back(answer.plan.boundaries);
  starts.push_back(balanced_stages(playable.partition));
  for (const Lighter lighter : {Lighter::None, Lighter::Last, Lighter::Ends}) {
    if (auto split = counted_split(layers, stages, lighter)) starts.push_back(*std::move(split));
  }
  return starts;
}

// Nothing where no split is known that fits the budget.
StatusOr<std::optional<PlannedStep>> fastest(const PlanningRequest& request, const Playable& playable,
                                             PartitionAnswer& answer, SplitPlayer& player) {
  SplitSearch search(request, playable, player);
  const auto boundaries = search.best_from(starts_of(request, playable, answer));
  if (!boundaries && !answer.feasible) return std::nullopt;
  if (!boundaries) return player.play(std::move(answer.plan));  // it says why it cannot be played
  PENSTOCK_ASSIGN_OR_RETURN(Partition partition, evaluate_partition(playable.partition, *boundaries));
  return player.play(std::move(partition));
}

// Leaves those that no other beats in time and memory, fastest first, and of many some with the ends.
void keep_worth_while(std::vector<PlannedStep>& steps) {
  std::stable_sort(steps.begin(), steps.end(), is_better);
  std::vector<PlannedStep> kept;
  for (PlannedStep& step : steps) {
    if (kept.empty() || step.partition.peak_bytes < kept.back().partition.peak_bytes)
      kept.push_back(std::move(step));
  }
  steps.clear();
  const size_t last = kept.size() - 1, points = std::min<size_t>(kept.size(), kCurvePoints);
  for (size_t point = 0; point < points; ++point)
    steps.push_back(std::move(kept[points == 1 ? 0 : point * last / (points - 1)]));
}

// --- the answer.

Status check_current_split(const PlanningRequest& request) {
  const std::vector<int>& split = request.current_split;
  if (split.empty()) return ok_status();
  const int layers = static_cast<int>(request.layers.size());
  const int64_t stages = int64_t{request.ranks} * request.asked.stages_per_rank;
  const bool is_ascending =
      std::adjacent_find(split.begin(), split.end(), std::greater_equal()) == split.end();
  if (std::ssize(split) == stages + 1 && is_ascending && split.front() == 0 && split.back() == layers)
    return ok_status();
  return invalid_argument("current split: expected {} ascending boundaries from 0 to {}", stages + 1, layers);
}

Status check(const PlanningRequest& request) {
  if (request.forward_ns.size() != request.layers.size()) {
    return invalid_argument("forward times: expected {}, one a layer, found {}", request.layers.size(),
                            request.forward_ns.size());
  }
  for (size_t layer = 0; layer < request.layers.size(); ++layer) {
    if (request.forward_ns[layer] < 0 || request.forward_ns[layer] > request.layers[layer].keep.time_ns) {
      return invalid_argument("layers[{}]: expected a forward within its time", layer);
    }
  }
  if (!request.split_backward_bytes.empty() && request.split_backward_bytes.size() != request.layers.size()) {
    return invalid_argument("bytes of split backwards: expected {}, one a layer, found {}",
                            request.layers.size(), request.split_backward_bytes.size());
  }
  if (!request.update_ns.empty() && request.update_ns.size() != request.layers.size()) {
    return invalid_argument("updates: expected {}, one a layer, found {}", request.layers.size(),
                            request.update_ns.size());
  }
  for (const int64_t update : request.update_ns) {
    if (update >= 0 && update <= kUpdateNsMax) continue;
    return invalid_argument("updates: expected 0 to {} ns, found {}", kUpdateNsMax, update);
  }
  PENSTOCK_RETURN_IF_ERROR(check_current_split(request));
  if (request.rank_bytes < 0 || request.rank_bytes > kRankBytesMax) {
    return invalid_argument("bytes of a rank: expected 0 to {}, found {}", kRankBytesMax, request.rank_bytes);
  }
  if (request.latency_ns < 0 || request.latency_ns > kLatencyNsMax) {
    return invalid_argument("latency: expected 0 to 1 s, found {} ns", request.latency_ns);
  }
  return ok_status();
}

void note_smallest(const PartitionAnswer& answer, PlanningAnswer& planned) {
  if (planned.missing_bytes && *planned.missing_bytes <= *answer.missing_bytes) return;
  planned.missing_bytes = answer.missing_bytes;
  planned.smallest_budget = answer.smallest_budget;
}

std::string misfit_text(const PlanningRequest& request, const PartitionAnswer& answer) {
  if (!answer.smallest_budget)
    return fmt::format("does not fit; every rank needs {} bytes more", *answer.missing_bytes);
  return fmt::format("does not fit; needs {} bytes", *answer.smallest_budget + request.rank_bytes);
}

void add_searched_program(const PlanningRequest& request, const Playable& playable, PlannedStep& step) {
  const bool is_given = request.program && playable.choice == request.asked;
  if (is_searched_schedule(playable.choice.schedule) && !is_given) step.program = playable.program;
}

StatusOr<PlannedStep> play_split(const PlanningRequest& request, const Playable& playable,
                                 const std::vector<int>& boundaries) {
  PENSTOCK_ASSIGN_OR_RETURN(Partition partition, evaluate_partition(playable.partition, boundaries));
  PENSTOCK_ASSIGN_OR_RETURN(SplitPlayer player, SplitPlayer::of(request, playable));
  PENSTOCK_ASSIGN_OR_RETURN(PlannedStep step, player.play(std::move(partition)));
  step.limit = limit_of(playable, step, std::nullopt);
  add_searched_program(request, playable, step);
  return step;
}

class Planner {
 public:
  explicit Planner(const PlanningRequest& request) : request_(request) {}

  PlanningAnswer plan() && {
    add_plans();
    std::stable_sort(answer_.plans.begin(), answer_.plans.end(), is_better);
    if (!answer_.plans.empty()) {
      answer_.missing_bytes.reset();
      answer_.smallest_budget.reset();
    }
    if (request_.only_plans) return std::move(answer_);
    add_baseline("uniform", Lighter::None);
    add_baseline("last-lighter", Lighter::Last);
    add_baseline("ends-lighter", Lighter::Ends);
    if (!answer_.curve.empty()) keep_worth_while(answer_.curve);
    return std::move(answer_);
  }

 private:
  // When the time is up a first one is looked at, and, where that does not fit, 1f1b, which holds less than most and whose exact
  // split is found soon: few jobs are refused for want of time.
  bool is_needed_late(const ScheduleChoice& choice) const {
    if (!answer_.plans.empty()) return false;
    return answer_.left_out.empty() || choice == ScheduleChoice{"1f1b", 1};
  }

  // The asked schedule goes first: its plan is never worse than its baselines, however short the time is.
  void add_plans() {
    std::vector<ScheduleChoice> among = request_.among;
    std::stable_partition(among.begin(), among.end(),
                          [&](const ScheduleChoice& choice) { return choice == request_.asked; });
    for (const ScheduleChoice& choice : among) {
      answer_.is_cut_short = answer_.is_cut_short || is_over(request_);
      if (answer_.is_cut_short && !is_needed_late(choice))
        answer_.not_reached.push_back(choice);
      else
        add_plan(choice);
    }
    answer_.is_cut_short = answer_.is_cut_short || is_over(request_);
  }

  // The best plan with one schedule, or why there is none.
  void add_plan(const ScheduleChoice& choice) {
    const auto leave_out = [&](std::string reason) {
      answer_.left_out.push_back({choice, std::move(reason)});
    };
    StatusOr<Playable> playable = make_playable(request_, choice);
    if (!playable.ok()) return leave_out(message(playable.status()));
    StatusOr<PartitionAnswer> split = partition(playable->partition);
    if (!split.ok()) return leave_out(message(split.status()));
    answer_.oversized = split->oversized;
    StatusOr<SplitPlayer> player = SplitPlayer::of(request_, *playable);
    if (!player.ok()) return leave_out(message(player.status()));
    StatusOr<std::optional<PlannedStep>> step = fastest(request_, *playable, *split, *player);
    if (!step.ok()) return leave_out(message(step.status()));
    if (!*step) {
      note_smallest(*split, answer_);
      return leave_out(misfit_text(request_, *split));
    }
    (*step)->limit = limit_of(*playable, **step, answer_.oversized);
    add_searched_program(request_, *playable, **step);
    answer_.plans.push_back(**std::move(step));
    if (!request_.only_plans) add_to_curve(*playable, *player);
    if (choice == request_.asked) asked_ = *std::move(playable);
  }

  void add_baseline(const std::string& name, Lighter lighter) {
    Baseline baseline{name, std::nullopt, ""};
    const Status status = play_baseline(lighter, baseline);
    baseline.why_not = message(status);
    answer_.baselines.push_back(std::move(baseline));
  }

  Status play_baseline(Lighter lighter, Baseline& baseline) {
    const auto boundaries = counted_split(static_cast<int>(request_.layers.size()),
                                          request_.ranks * request_.asked.stages_per_rank, lighter);
    if (!boundaries) return failed_precondition("the model has too few layers for it");
    if (!asked_) {
      PENSTOCK_ASSIGN_OR_RETURN(asked_, make_playable(request_, request_.asked));
    }
    PENSTOCK_ASSIGN_OR_RETURN(baseline.step, play_split(request_, *asked_, *boundaries));
    return ok_status();
  }

  // The newest plan, and splits that need less memory.
  void add_to_curve(const Playable& playable, SplitPlayer& player) {
    answer_.curve.push_back(answer_.plans.back());
    if (is_over(request_)) return;
    StatusOr<std::vector<Partition>> partitions =
        time_memory_curve(playable.partition, kCurvePointsOfSchedule);
    if (!partitions.ok()) return;
    for (Partition& partition : *partitions) {
      StatusOr<PlannedStep> step = player.play(std::move(partition));
      if (!step.ok()) continue;  // longer than can be counted
      add_searched_program(request_, playable, *step);
      answer_.curve.push_back(*std::move(step));
    }
  }

  const PlanningRequest& request_;
  PlanningAnswer answer_;
  std::optional<Playable> asked_;
};

void add_to_ranks(int64_t bytes, PlannedStep& step) {
  for (int64_t& rank : step.partition.rank_bytes) rank += bytes;
  step.partition.peak_bytes += bytes;
}

}  // namespace

StatusOr<PlanningAnswer> plan_training(const PlanningRequest& request) {
  PENSTOCK_RETURN_IF_ERROR(check(request));
  PlanningRequest of_layers = request;
  for (int64_t& budget : of_layers.budget_bytes) budget -= request.rank_bytes;
  PlanningAnswer planned = Planner(of_layers).plan();
  for (PlannedStep& step : planned.plans) add_to_ranks(request.rank_bytes, step);
  for (PlannedStep& step : planned.curve) add_to_ranks(request.rank_bytes, step);
  for (Baseline& baseline : planned.baselines) {
    if (baseline.step) add_to_ranks(request.rank_bytes, *baseline.step);
  }
  if (planned.smallest_budget) *planned.smallest_budget += request.rank_bytes;
  return planned;
}

StatusOr<PlannedStep> simulate_split(const PlanningRequest& request, const ScheduleChoice& choice,
                                     const std::vector<int>& boundaries) {
  PENSTOCK_RETURN_IF_ERROR(check(request));
  PENSTOCK_ASSIGN_OR_RETURN(const Playable playable, make_playable(request, choice));
  return play_split(request, playable, boundaries);
}

std::vector<ScheduleChoice> schedules_to_plan(bool searched) {
  std::vector<ScheduleChoice> choices = {{"gpipe", 1},
                                         {"1f1b", 1},
                                         {"interleaved-1f1b", 2},
                                         {"interleaved-1f1b", 3},
                                         {"interleaved-1f1b", 4},
                                         {"looped-bfs", 2},
                                         {"1f1b-v", 2},
                                         {"zb-h1", 1},
                                         {"zb-h2", 1},
                                         {"zb-v", 2},
                                         {"v-half", 2},
                                         {"v-min", 2}};
  if (!searched) return choices;
  choices.push_back({"zb-auto", 1});
  choices.push_back({"v-auto", 2});
  return choices;
}

std::optional<std::vector<int>> counted_split(int layers, int stages, Lighter lighter) {
  const int counted = layers - 2 + (lighter == Lighter::None ? 0 : lighter == Lighter::Last ? 1 : 2);
  if (layers < 3 || counted < stages) return std::nullopt;
  std::vector<int> boundaries = equal_counts(counted, stages);
  if (lighter != Lighter::Ends) {  // then the embedding does not count
    for (int& boundary : boundaries) ++boundary;
  }
  boundaries.front() = 0;
  boundaries.back() = layers;
  return boundaries;
}

}  // namespace penstock::plan
