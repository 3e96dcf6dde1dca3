#include "client/commands/schedule_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <limits>
#include <span>
#include <utility>

#include "base/text.h"
#include "client/commands/program_file.h"
#include "client/commands/terminal.h"
#include "plan/generation/generate.h"
#include "plan/interop/stage_costs.h"

namespace penstock::client {
namespace {

constexpr std::string_view kFilePrefix = "file:";
constexpr size_t kCostFileBytesMax = size_t{64} << 20;

// --- costs: of stages and of the links between ranks.

StatusOr<plan::ScaledCosts> compute_costs(const ScheduleOptions& options, int stages) {
  if (options.stage_costs.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const plan::UniformCosts costs,
                              plan::parse_uniform_costs(options.costs, options.latency));
    return plan::ScaledCosts{costs.scale, costs.for_stages(stages)};
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(options.stage_costs, kCostFileBytesMax));
  return plan::stage_costs_from_json(text, options.stage_costs, stages, options.latency);
}

// The same times in millionths of the unit, so that a message's time is rounded by less than one of them.
StatusOr<plan::ScaledCosts> in_millionths(plan::ScaledCosts scaled) {
  const std::string finest[] = {"0.000001"};
  PENSTOCK_ASSIGN_OR_RETURN(const plan::TickScale scale, plan::TickScale::for_numbers(finest));
  const plan::Ticks factor = scale.ticks_per_unit() / scaled.scale.ticks_per_unit();
  if (factor <= 1) return scaled;
  plan::SimulationCosts& costs = scaled.costs;
  for (plan::StageCosts& stage : costs.stages) {
    stage.forward *= factor;
    stage.input_gradient *= factor;
    stage.weight_gradient *= factor;
    if (stage.backward) *stage.backward *= factor;
  }
  costs.overlapped_pair *= factor;
  costs.latency *= factor;
  scaled.scale = scale;
  return scaled;
}

Status add_messages(const ScheduleOptions& options, plan::ScaledCosts& scaled) {
  if (options.bandwidth.empty() != options.message_bytes.empty()) {
    return invalid_argument(
        "{}: missing; --bandwidth and --message-bytes say how long a transfer takes together",
        options.bandwidth.empty() ? "--bandwidth" : "--message-bytes");
  }
  if (options.bandwidth.empty()) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t bandwidth, parse_bytes(options.bandwidth, "--bandwidth"));
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t bytes, parse_bytes(options.message_bytes, "--message-bytes"));
  if (bandwidth < 1)
    return invalid_argument("--bandwidth: expected at least 1 byte, found {}", options.bandwidth);
  PENSTOCK_ASSIGN_OR_RETURN(scaled, in_millionths(std::move(scaled)));
  scaled.costs.bandwidth = {bandwidth, scaled.scale.ticks_per_unit()};
  scaled.costs.message_bytes.assign(scaled.costs.stages.size() - 1, bytes);
  return ok_status();
}

// "4/132": a posted receive holds 4 of 132 thread blocks while it waits. "1.1": as many as slow the compute
// beside it to 1.1 times its length.
StatusOr<plan::ResidentWaits> resident_waits(const std::string& text) {
  const auto refuse = [&] {
    return invalid_argument(
        "--contention: expected a slow-down from 1 to 100 with at most 4 decimals, as 1.1, or thread blocks, as "
        "4/132, found {}",
        text.substr(0, 40));
  };
  const std::vector<std::string> parts = split_on(text, '/');
  if (parts.size() > 2) return refuse();
  const StatusOr<plan::TickScale> scale = plan::TickScale::for_numbers(parts);
  if (!scale.ok() || scale->ticks_per_unit() > 10'000) return refuse();
  const plan::Ticks unit = scale->ticks_per_unit();
  const plan::Ticks first = *scale->to_ticks(parts[0]);
  if (parts.size() == 1) {
    if (first < unit || first > 100 * unit) return refuse();
    return plan::ResidentWaits{static_cast<int32_t>(first), static_cast<int32_t>(first - unit)};
  }
  const plan::Ticks second = *scale->to_ticks(parts[1]);
  if (unit != 1 || first < 0 || first >= second || second > 1'000'000) return refuse();
  return plan::ResidentWaits{static_cast<int32_t>(second), static_cast<int32_t>(first)};
}

StatusOr<plan::ScaledCosts> costs_of(const ScheduleOptions& options, int stages) {
  PENSTOCK_ASSIGN_OR_RETURN(plan::ScaledCosts scaled, compute_costs(options, stages));
  PENSTOCK_RETURN_IF_ERROR(add_messages(options, scaled));
  if (!options.contention.empty() && !options.one_sided) {
    PENSTOCK_ASSIGN_OR_RETURN(scaled.costs.waits, resident_waits(options.contention));
  }
  return scaled;
}

// --- memory: what a search keeps within.

// Decimals with signs, as whole counts of one scale.
struct Scaled {
  plan::TickScale scale;
  std::vector<std::vector<int64_t>> numbers;  // a list a text
};

StatusOr<Scaled> scaled_numbers(std::span<const std::string> lists) {
  Scaled scaled;
  std::vector<std::string> sizes;
  std::vector<bool> negative;
  for (const std::string& list : lists) {
    for (const std::string& text : split_on(list, ',')) {
      const std::string_view number = trim(text);
      negative.push_back(number.starts_with('-'));
      sizes.emplace_back(number.substr(negative.back() ? 1 : 0));
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(scaled.scale, plan::TickScale::for_numbers(sizes));
  size_t next = 0;
  for (const std::string& list : lists) {
    auto& numbers = scaled.numbers.emplace_back();
    for (size_t i = split_on(list, ',').size(); i > 0; --i, ++next) {
      PENSTOCK_ASSIGN_OR_RETURN(const plan::Ticks size, scaled.scale.to_ticks(sizes[next]));
      numbers.push_back(negative[next] ? -size : size);
    }
  }
  return scaled;
}

struct ScaledLimits {
  plan::TickScale scale;
  plan::MemoryLimits limits;
};

// Without a limit a search may hold all forwards of a step.
StatusOr<ScaledLimits> memory_limits(const ScheduleOptions& options, int stages_per_rank) {
  const int all = options.microbatches.value_or(1) * stages_per_rank;
  const std::string lists[] = {options.memory_deltas,
                               options.memory_limit.empty() ? fmt::format("{}", all) : options.memory_limit};
  const StatusOr<Scaled> scaled = scaled_numbers(lists);
  if (!scaled.ok()) return with_context(scaled.status(), "--memory-deltas and --memory-limit");
  const std::vector<int64_t>& deltas = scaled->numbers[0];
  if (deltas.size() != 3) {
    return invalid_argument("--memory-deltas: expected F,I,W, found {} numbers", deltas.size());
  }
  ScaledLimits result{scaled->scale, {}};
  result.limits.deltas = {{deltas[0], deltas[1], deltas[2]}};
  result.limits.limits = scaled->numbers[1];
  if (options.memory_limit.empty()) {
    result.limits.limits = {all * std::max<int64_t>(deltas[0], 1)};
  }
  return result;
}

StatusOr<std::optional<plan::MemoryAssumptions>> memory_assumptions(const ScheduleOptions& options) {
  if (options.bytes_per_activation.empty()) {
    if (options.static_bytes.empty() && options.memory_budget.empty()) return std::nullopt;
    return invalid_argument("--bytes-per-activation: missing; the bytes of a rank need it");
  }
  plan::MemoryAssumptions memory;
  PENSTOCK_ASSIGN_OR_RETURN(memory.bytes_per_activation,
                            parse_byte_list(options.bytes_per_activation, "--bytes-per-activation"));
  if (!options.static_bytes.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(memory.static_bytes, parse_byte_list(options.static_bytes, "--static-bytes"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(memory.budget_bytes, parse_byte_list(options.memory_budget, "--memory-budget"));
  return memory;
}

// --- the program.

StatusOr<std::vector<int>> extra_warm_up(const std::string& list) {
  std::vector<int> counts;
  if (list.empty()) return counts;
  for (const std::string& text : split_on(list, ',')) {
    const std::string_view number = trim(text);
    int& count = counts.emplace_back();
    const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), count);
    if (failure != std::errc() || end != number.data() + number.size() || count < 0) {
      return invalid_argument("--extra-warmup: expected forwards by rank, as 1 or 0,1,1,0, found {}",
                              list.substr(0, 40));
    }
  }
  return counts;
}

struct Made {
  plan::ComputeProgram program;
  std::optional<plan::SearchResult> search;
};

StatusOr<Made> searched(const ScheduleOptions& options, plan::GenerationRequest request) {
  const int stages_per_rank = options.name == "v-auto" ? 2 : 1;
  PENSTOCK_ASSIGN_OR_RETURN(plan::ScaledCosts costs, costs_of(options, *options.pipeline * stages_per_rank));
  PENSTOCK_ASSIGN_OR_RETURN(ScaledLimits limits, memory_limits(options, stages_per_rank));
  request.costs = std::move(costs.costs);
  request.memory = std::move(limits.limits);
  request.search.seed = options.seed;
  request.search.evaluations_max =
      options.search_evaluations > 0 ? options.search_evaluations : std::numeric_limits<int64_t>::max();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.search_seconds);
  request.search.keep_going = [end] { return std::chrono::steady_clock::now() < end; };
  PENSTOCK_ASSIGN_OR_RETURN(plan::GeneratedSchedule made, plan::generate(request));
  Made result{std::move(made.program), std::nullopt};
  if (made.search) result.search = plan::SearchResult{*std::move(made.search), limits.scale};
  return result;
}

StatusOr<Made> generated(const ScheduleOptions& options) {
  if (!options.pipeline)
    return invalid_argument("-p/--pipeline: missing; {} needs a number of ranks", options.name);
  if (!options.microbatches)
    return invalid_argument("-m/--microbatches: missing; {} needs a number", options.name);
  plan::GenerationRequest request;
  request.schedule.name = options.name;
  request.schedule.ranks = *options.pipeline;
  request.schedule.microbatches = *options.microbatches;
  request.schedule.stages_per_rank = options.stages_per_rank;
  request.schedule.updates = options.updates;
  PENSTOCK_ASSIGN_OR_RETURN(request.schedule.extra_warm_up_forwards, extra_warm_up(options.extra_warmup));
  const bool has_shape = *options.pipeline >= 1 && *options.microbatches >= 1;
  if (has_shape && plan::is_searched_schedule(options.name)) return searched(options, std::move(request));
  if (!options.memory_limit.empty()) {
    return invalid_argument("--memory-limit: only zb-auto and v-auto search within a limit; {} is what it is",
                            options.name);
  }
  PENSTOCK_ASSIGN_OR_RETURN(plan::GeneratedSchedule made, plan::generate(request));
  return Made{std::move(made.program), std::nullopt};
}

// A program from a file is verified like any other before it is played.
StatusOr<Made> made(const ScheduleOptions& options) {
  if (!options.name.starts_with(kFilePrefix)) return generated(options);
  const std::string path = options.name.substr(kFilePrefix.size());
  PENSTOCK_ASSIGN_OR_RETURN(ProgramFile file, read_program_file(path));
  if (file.verdict.valid()) return Made{std::move(file.program), std::nullopt};
  return invalid_argument("{}: {}", path, file.verdict.violations.front().to_string());
}

}  // namespace

StatusOr<int64_t> parse_bytes(const std::string& text, const char* option) {
  constexpr std::array<std::pair<std::string_view, int64_t>, 9> kUnits = {{{"TiB", int64_t{1} << 40},
                                                                           {"GiB", int64_t{1} << 30},
                                                                           {"MiB", int64_t{1} << 20},
                                                                           {"KiB", int64_t{1} << 10},
                                                                           {"TB", 1'000'000'000'000},
                                                                           {"GB", 1'000'000'000},
                                                                           {"MB", 1'000'000},
                                                                           {"KB", 1'000},
                                                                           {"B", 1}}};
  constexpr int64_t kMost = int64_t{1} << 60;
  std::string_view digits = trim(text);
  int64_t unit = 1;
  for (const auto& [name, bytes] : kUnits) {
    if (!digits.ends_with(name)) continue;
    digits = trim(digits.substr(0, digits.size() - name.size()));
    unit = bytes;
    break;
  }
  int64_t count = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (failure == std::errc() && end == digits.data() + digits.size() && count >= 0 && count <= kMost / unit) {
    return count * unit;
  }
  return invalid_argument("{}: expected whole bytes with an optional unit, as 80GB or 512MiB, found {}",
                          option, text.substr(0, 40));
}

StatusOr<plan::ScheduleReport> schedule_report(const ScheduleOptions& options) {
  plan::ReportRequest request;
  PENSTOCK_ASSIGN_OR_RETURN(request.memory, memory_assumptions(options));
  PENSTOCK_ASSIGN_OR_RETURN(Made program, made(options));
  PENSTOCK_ASSIGN_OR_RETURN(request.costs, costs_of(options, program.program.stages()));
  request.timeline = options.timeline == "aligned" ? plan::Timeline::Aligned : plan::Timeline::Earliest;
  request.as_lowered = options.one_sided || !options.contention.empty();
  if (request.as_lowered && request.timeline == plan::Timeline::Aligned) {
    return invalid_argument(
        "--timeline: the aligned one knows no transfers; leave out --contention and --one-sided");
  }
  request.search = std::move(program.search);
  return plan::make_report(std::move(program.program), request);
}

StatusOr<std::vector<int64_t>> parse_byte_list(const std::string& list, const char* option) {
  std::vector<int64_t> bytes;
  if (list.empty()) return bytes;
  for (const std::string& text : split_on(list, ',')) {
    PENSTOCK_ASSIGN_OR_RETURN(bytes.emplace_back(), parse_bytes(text, option));
  }
  return bytes;
}

}  // namespace penstock::client
