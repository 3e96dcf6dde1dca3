#include "client/commands/job_schedule.h"

#include <fmt/format.h>

#include <chrono>
#include <limits>

#include "base/text.h"
#include "plan/generation/generate.h"
#include "plan/simulation/costs.h"

namespace penstock::client {
namespace {

plan::MemoryLimits memory_limits(const plan::JobSpec& spec) {
  const int64_t all = spec.microbatches() * spec.parallel.stages_per_rank;
  const int64_t limit = spec.parallel.schedule_options.memory_limit;
  plan::MemoryLimits limits;
  limits.limits = {limit == 0 ? all : limit};
  return limits;
}

std::string found_line(const std::string& name, const plan::SearchReport& report,
                       const plan::TickScale& scale) {
  const std::string span = scale.to_text(report.max_stage_span);
  if (report.optimal) {
    return fmt::format("{}: longest stage span {}, which no schedule within the limits beats", name, span);
  }
  return fmt::format("{}: longest stage span {}, at most {:.1f} % above the best possible", name, span,
                     report.gap_percent);
}

}  // namespace

StatusOr<SearchedSchedule> search_schedule(const plan::JobSpec& spec) {
  const plan::ScheduleOptions& options = spec.parallel.schedule_options;
  PENSTOCK_ASSIGN_OR_RETURN(const plan::UniformCosts costs,
                            plan::parse_uniform_costs(join(options.costs, ",")));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.search_seconds);
  plan::GenerationRequest request{
      .schedule = {.name = spec.parallel.schedule,
                   .ranks = spec.parallel.pipeline,
                   .microbatches = static_cast<int>(spec.microbatches()),
                   .stages_per_rank = spec.parallel.stages_per_rank},
      .costs = costs.for_stages(spec.stages()),
      .memory = memory_limits(spec),
      .search = {.evaluations_max = std::numeric_limits<int64_t>::max(),
                 .keep_going = [end] { return std::chrono::steady_clock::now() < end; }}};
  StatusOr<plan::GeneratedSchedule> made = plan::generate(request);
  if (!made.ok()) return with_context(made.status(), plan::place_of(spec, "parallel.schedule_options"));
  return SearchedSchedule{std::move(made->program),
                          found_line(spec.parallel.schedule, *made->search, costs.scale)};
}

}  // namespace penstock::client
