// The best plan for a job that is known by the costs of its layers: which schedule, how many stages a rank, which split and
// which layers recompute, within a memory budget.
//
// For every schedule the exact split of plan/partition is made with the in-flight counts of that schedule's own program,
// and the program is then played (plan/simulation) with the split's times: schedules are ranked by what a step takes, not
// by their slowest rank. The split with the least slowest rank need not be the fastest one: with few microbatches filling,
// draining and updates count too, and with several stages a rank it may have long stages beside short ones. So the exact split,
// the one with the least slowest stage, the baselines' and the current one are all played, and changed layer by layer while
// that pays (internal/split_search.h). With one stage a rank that finds the fastest of all splits in every small case that was
// tried, with more in 99 of 100 (random_planner_test.cc). For the exact split an update counts as part of each microbatch.
//
// Beside the plans stand baselines, the splits that people write without costs, on the schedule that the job asks for. Where
// that is among the schedules to plan, no baseline is faster than the first plan.
//
// Pure; any thread. The searched schedules take as long as `start_search` lets them, everything together about as long as
// `keep_going` does: beyond it what is under way is finished, and where no plan stands yet a first schedule and 1f1b are looked at.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/partition/partition.h"
#include "plan/schedule/program.h"
#include "plan/simulation/simulate.h"

namespace penstock::plan {

struct ScheduleChoice {
  std::string schedule;
  int stages_per_rank = 1;

  bool operator==(const ScheduleChoice&) const = default;
};

struct PlanningRequest {
  std::vector<LayerCost> layers;    // in model order
  std::vector<int64_t> forward_ns;  // of each layer's keep.time_ns; the rest is its backward
  std::vector<int64_t> update_ns;   // of each layer, of the optimizer in a step; empty: nothing
  // Whether ranks update their layers once all of them have their gradients, as the norm of all gradients asks for. Else, and
  // where a program spans several steps, an update counts as part of each microbatch.
  bool updates_wait = true;
  // Of each layer: what a microbatch in flight holds more where a backward is an I and a W. Empty: nothing. Where it is
  // said, schedules with such backwards recompute no layer: what their I recomputes lives on until W.
  std::vector<int64_t> split_backward_bytes;
  int64_t rank_bytes = 0;           // that every rank holds, whatever its layers
  std::vector<int64_t> rank_speed;  // as PartitionRequest
  int ranks = 1;
  int microbatches = 1;
  std::vector<int64_t> budget_bytes;      // as PartitionRequest
  std::vector<int> current_rank;          // of each layer, where a plan runs already
  std::vector<int> current_split;         // its boundaries, where it runs with the asked schedule
  std::vector<ScheduleChoice> among;      // those that fit no shape are left out, and said
  ScheduleChoice asked;                   // the baselines' schedule
  std::optional<ComputeProgram> program;  // of `asked`, where its name alone does not say it
  int64_t latency_ns = 0;                 // of a message between ranks
  // Asked once for each searched schedule: how long its search may go on. Empty: a fixed number of tries.
  std::function<std::function<bool()>()> start_search;
  // Forwards, of one stage each, that a rank may hold with a searched schedule; 0: any. None: as many as with 1f1b.
  std::optional<int64_t> search_limit;
  std::optional<StageCosts> search_costs;  // of every stage; none: those of stages of equal time
  // Asked before and while anything takes long. Empty: yes.
  std::function<bool()> keep_going;
  bool only_plans = false;  // no baselines and no curve
};

struct PlannedStep {
  ScheduleChoice choice;
  StagePlacement placement = StagePlacement::Loop;
  Partition partition;
  int64_t step_ns = 0;
  double bubble_fraction = 0;               // idle by all of the ranks' time
  std::string limit;                        // what keeps it from being faster
  std::optional<ComputeProgram> program{};  // the one that was searched for and played
};

struct Baseline {
  std::string name;                 // "uniform", "last-lighter", "ends-lighter"
  std::optional<PlannedStep> step;  // none: it does not fit
  std::string why_not;
};

struct LeftOut {
  ScheduleChoice choice;
  std::string reason;
};

struct PlanningAnswer {
  std::vector<PlannedStep> plans;  // fastest first; of equal ones the lower peak
  std::vector<Baseline> baselines;
  std::vector<PlannedStep> curve;  // of all schedules: what less memory costs, the best plan first
  std::vector<LeftOut> left_out;
  bool is_cut_short = false;                // keep_going said no
  std::vector<ScheduleChoice> not_reached;  // then: those that nothing is known of
  std::optional<OversizedLayer> oversized;
  std::optional<int64_t>
      missing_bytes;  // where no plan fits: the least that every rank needs more for some schedule
  std::optional<int64_t> smallest_budget;  // then, of one budget for all: the smallest that works
};

// InvalidArgument names the field. No plan at all is an answer, with the smallest budget.
StatusOr<PlanningAnswer> plan_training(const PlanningRequest& request);

// What a given split would do; FailedPrecondition when it does not fit.
StatusOr<PlannedStep> simulate_split(const PlanningRequest& request, const ScheduleChoice& choice,
                                     const std::vector<int>& boundaries);

// Every schedule that a contiguous split can serve, with the stages a rank that are worth a look; naive and the
// asynchronous ones are not among them. `searched` adds zb-auto and v-auto.
std::vector<ScheduleChoice> schedules_to_plan(bool searched);

// The splits that people write without costs, over items embedding, blocks, head: equal counts of blocks, the remainder in
// the middle stages, where the last stage, or the first and the last, get one block fewer.
enum class Lighter : uint8_t { None, Last, Ends };
// Nothing where a stage would be left without a layer.
std::optional<std::vector<int>> counted_split(int layers, int stages, Lighter lighter);

}  // namespace penstock::plan
