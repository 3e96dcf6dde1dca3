#include "plan/partition/partition.h"

#include <algorithm>

#include "client/commands/commands.h"
#include "client/commands/in_flight.h"
#include "client/commands/planning_words.h"
#include "client/commands/schedule_request.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "plan/interop/layer_costs.h"
#include "plan/render/human.h"
#include "plan/render/table.h"

namespace penstock::client {
namespace {

using plan::Partition;
using plan::PartitionAnswer;
using plan::PartitionRequest;
using plan::StagePlacement;
using plan::Table;

constexpr size_t kCostFileBytesMax = size_t{64} << 20;

// The rank of every layer in the split that runs.
StatusOr<std::vector<int>> current_ranks(const std::vector<int>& boundaries,
                                         const PartitionRequest& request) {
  std::vector<int> ranks;
  if (boundaries.empty()) return ranks;
  const bool whole = boundaries.size() == request.in_flight.size() + 1 && boundaries.front() == 0 &&
                     boundaries.back() == static_cast<int>(request.layers.size()) &&
                     std::is_sorted(boundaries.begin(), boundaries.end());
  if (!whole) {
    return invalid_argument("--current: expected {} ascending boundaries from 0 to {}",
                            request.in_flight.size() + 1, request.layers.size());
  }
  for (size_t stage = 0; stage + 1 < boundaries.size(); ++stage) {
    const int rank = plan::rank_of_stage(request.placement, request.ranks, static_cast<int>(stage));
    ranks.insert(ranks.end(), static_cast<size_t>(boundaries[stage + 1] - boundaries[stage]), rank);
  }
  return ranks;
}

StatusOr<PartitionRequest> request_of(const PartitionOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(options.file, kCostFileBytesMax));
  PENSTOCK_ASSIGN_OR_RETURN(plan::LayerCosts costs, plan::layer_costs_from_json(text, options.file));
  InFlightQuestion question;
  question.schedule = options.schedule;
  question.ranks = options.pipeline;
  question.stages_per_rank = options.stages_per_rank;
  question.microbatches = options.microbatches;
  if (!options.placement.empty()) {
    question.placement = options.placement == "v" ? StagePlacement::V : StagePlacement::Loop;
  }
  PENSTOCK_ASSIGN_OR_RETURN(InFlight in_flight, in_flight_of(question));
  PartitionRequest request;
  request.layers = std::move(costs.layers);
  request.rank_speed = std::move(costs.rank_speed);
  request.ranks = options.pipeline;
  request.stages_per_rank = options.stages_per_rank;
  request.placement = in_flight.placement;
  request.in_flight = std::move(in_flight.counts);
  request.allow_empty_stages = options.allow_empty;
  PENSTOCK_ASSIGN_OR_RETURN(request.budget_bytes, parse_byte_list(options.memory_budget, "--memory-budget"));
  PENSTOCK_ASSIGN_OR_RETURN(request.current_rank, current_ranks(options.current, request));
  return request;
}

// --- for people.

std::string layers_text(const PartitionRequest& request, int begin, int end) {
  if (begin == end) return "nothing";
  const std::string& first = request.layers[static_cast<size_t>(begin)].name;
  if (end - begin == 1) return first;
  return fmt::format("{} to {}", first, request.layers[static_cast<size_t>(end) - 1].name);
}

int recomputed_in(const Partition& plan, int begin, int end) {
  return static_cast<int>(std::count_if(plan.recomputed.begin(), plan.recomputed.end(),
                                        [&](int layer) { return layer >= begin && layer < end; }));
}

std::string table_text(const PartitionRequest& request, const Partition& plan) {
  using enum Table::Align;
  Table table({{"STAGE", Right},
               {"RANK", Right},
               {"TIME", Right},
               {"OF RANK", Right},
               {"PEAK", Right},
               {"COUNT", Right},
               {"RECOMPUTED", Right},
               {"LAYERS"}});
  for (size_t stage = 0; stage + 1 < plan.boundaries.size(); ++stage) {
    const int begin = plan.boundaries[stage], end = plan.boundaries[stage + 1];
    const auto rank =
        static_cast<size_t>(plan::rank_of_stage(request.placement, request.ranks, static_cast<int>(stage)));
    table.add_row({fmt::format("{}", stage), fmt::format("{}", rank), planned_time(plan.stage_ns[stage]),
                   planned_time(plan.rank_ns[rank]), plan::human_bytes(plan.rank_bytes[rank]),
                   fmt::format("{}", end - begin), fmt::format("{}", recomputed_in(plan, begin, end)),
                   layers_text(request, begin, end)});
  }
  return table.text();
}

// Against equal counts, where those fit into the budget.
std::string comparison_text(const PartitionRequest& request, const Partition& plan) {
  const auto even =
      plan::evaluate_partition(request, plan::equal_counts(static_cast<int>(request.layers.size()),
                                                           static_cast<int>(request.in_flight.size())));
  if (!even.ok() || plan.slowest_ns == 0) return "";
  return fmt::format(
      ", {} with equal counts (+{:.1f} %)", planned_time(even->slowest_ns),
      100.0 * static_cast<double>(even->slowest_ns - plan.slowest_ns) / static_cast<double>(plan.slowest_ns));
}

std::string answer_text(const PartitionRequest& request, const PartitionAnswer& answer) {
  const Partition& plan = answer.plan;
  const std::string moved = request.current_rank.empty()
                                ? ""
                                : fmt::format("; {} to move", plan::counted(plan.moved_layers, "layer"));
  return table_text(request, plan) +
         fmt::format("slowest rank {}{}; peak {}{}{}\n", planned_time(plan.slowest_ns),
                     comparison_text(request, plan), plan::human_bytes(plan.peak_bytes), moved,
                     plan.exact ? "" : "; found by search, a better one may exist") +
         oversized_line(request.layers, answer.oversized);
}

int report_infeasible(const PartitionOptions& options, const PartitionAnswer& answer) {
  say(fmt::format("penstock: {}: no split on {} fits into {}; {}", options.file,
                  plan::counted(options.pipeline, "rank"), options.memory_budget,
                  missing_memory(answer.missing_bytes, answer.smallest_budget)));
  return kExitFailed;
}

}  // namespace

int partition(const PartitionOptions& options) {
  const StatusOr<PartitionRequest> request = request_of(options);
  if (!request.ok()) return report_error(request.status());
  const StatusOr<PartitionAnswer> answer = plan::partition(*request);
  if (!answer.ok()) return report_error(with_context(answer.status(), options.file));
  if (options.output == "json") {
    print(plan::partition_to_json(*request, *answer));
  } else if (answer->feasible) {
    print(answer_text(*request, *answer));
  }
  return answer->feasible ? kExitSucceeded : report_infeasible(options, *answer);
}

}  // namespace penstock::client
