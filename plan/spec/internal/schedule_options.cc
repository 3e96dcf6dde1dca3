#include "plan/spec/internal/schedule_options.h"

#include <fmt/format.h>

#include <array>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

constexpr IntegerRange kExtraForwards{0, 64};
constexpr double kLongestSearchSeconds = 600;

void read_extra_warm_up(const YamlNode::Entry& entry, ParallelSpec& parallel, Problems& problems) {
  const std::string field = "parallel.schedule_options.extra_warmup";
  const YamlNode& list = entry.value;
  const auto ranks = static_cast<size_t>(parallel.pipeline);
  const bool fits = list.is(YamlNode::Kind::List) && (list.items.size() == 1 || list.items.size() == ranks);
  if (!fits) {
    return problems.expected(list.line, field, fmt::format("a list of 1 count or {}, one a rank", ranks),
                             list.shown());
  }
  for (const YamlNode& item : list.items) {
    int64_t count = 0;
    if (!read_integer(item, field, kExtraForwards, count, problems)) return;
    parallel.schedule_options.extra_warm_up.push_back(static_cast<int>(count));
  }
}

void read_costs(const YamlNode::Entry& entry, ScheduleOptions& options, Problems& problems) {
  const std::string field = "parallel.schedule_options.costs";
  const YamlNode& list = entry.value;
  if (!list.is(YamlNode::Kind::List) || list.items.size() != options.costs.size()) {
    return problems.expected(list.line, field, "a list of 3 numbers: the times of F, I and W", list.shown());
  }
  for (size_t i = 0; i < options.costs.size(); ++i) {
    double ignored = 0;
    const NumberRange range{.least = 0, .most = 1e9, .above_least = true};
    if (read_number(list.items[i], field, range, ignored, problems)) options.costs[i] = list.items[i].text;
  }
}

void refuse_others(const Section& section, const ParallelSpec& parallel, Problems& problems) {
  const auto refuse = [&](const char* key, const std::string& expectation) {
    problems.expected(section.line_of(key), section.field(key), expectation,
                      "schedule " + shown_value(parallel.schedule));
  };
  const ScheduleOptions& options = parallel.schedule_options;
  if (!options.extra_warm_up.empty() && parallel.schedule != "1f1b-v") {
    refuse("extra_warmup", "schedule 1f1b-v");
  }
  if (is_searched_schedule(parallel.schedule)) return;
  const ScheduleOptions defaults;
  const std::string searched = "a schedule that is searched for, zb-auto or v-auto";
  if (options.memory_limit != defaults.memory_limit) refuse("memory_limit", searched);
  if (options.costs != defaults.costs) refuse("costs", searched);
  if (options.search_seconds != defaults.search_seconds) refuse("search_seconds", searched);
}

}  // namespace

void read_schedule_options(Section section, ParallelSpec& parallel, Problems& problems) {
  ScheduleOptions& options = parallel.schedule_options;
  if (const YamlNode::Entry* extra = section.entry("extra_warmup")) {
    read_extra_warm_up(*extra, parallel, problems);
  }
  section.integer("memory_limit", options.memory_limit, {1, int64_t{1} << 40});
  if (const YamlNode::Entry* costs = section.entry("costs")) read_costs(*costs, options, problems);
  section.number("search_seconds", options.search_seconds,
                 {.least = 0, .most = kLongestSearchSeconds, .above_least = true});
  refuse_others(section, parallel, problems);
  section.finish();
}

}  // namespace penstock::plan
