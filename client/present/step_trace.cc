#include "client/present/step_trace.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "plan/render/human.h"
#include "plan/render/perfetto.h"
#include "plan/render/table.h"
#include "plan/schedule/dataflow.h"
#include "plan/simulation/costs.h"
#include "proto/codec/limits.h"

namespace penstock::client {
namespace {

constexpr int kKinds = 4;
constexpr int64_t kLongest = int64_t{1} << 60;  // so that sums of times do not overflow

double seconds(int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e9;
}

// From rank 0's begin to this one's.
int64_t offset_of(const v1::StepTrace& first, const v1::StepTrace& rank) {
  return first.clock() == rank.clock() ? rank.monotonic_ns() - first.monotonic_ns()
                                       : rank.unix_ns() - first.unix_ns();
}

bool in_range(int64_t start_ns, int64_t took_ns) {
  return start_ns >= 0 && took_ns >= 0 && start_ns < kLongest && took_ns < kLongest;
}

StatusOr<plan::MeasuredRank> measured_rank(const v1::StepTrace& rank, int64_t offset) {
  plan::MeasuredRank measured;
  for (const v1::TracedWork& work : rank.works()) {
    if (work.kind() < 0 || work.kind() >= kKinds || !in_range(work.start_ns(), work.took_ns())) {
      return invalid_argument("the trace of rank {}: a work of kind {} from {} ns for {} ns", rank.rank(),
                              work.kind(), work.start_ns(), work.took_ns());
    }
    const int64_t start = offset + work.start_ns();
    measured.works.push_back({{StageIndex(work.stage()), static_cast<plan::ActionKind>(work.kind()),
                               MicrobatchIndex(work.microbatch())},
                              start,
                              start + work.took_ns(),
                              work.cpu_ns()});
  }
  for (const v1::TracedWait& wait : rank.waits()) {
    if (!in_range(wait.start_ns(), wait.took_ns())) {
      return invalid_argument("the trace of rank {}: a wait from {} ns for {} ns", rank.rank(),
                              wait.start_ns(), wait.took_ns());
    }
    const int64_t start = offset + wait.start_ns();
    const plan::Flow flow = wait.gradient() ? plan::Flow::Gradient : plan::Flow::Activation;
    measured.waits.push_back(
        {plan::passage_into(StageIndex(wait.stage()), MicrobatchIndex(wait.microbatch()), flow), start,
         start + wait.took_ns()});
  }
  return measured;
}

std::string percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

// What is of all pipelines, or of the slowest.
struct Whole {
  int64_t measured_ns = 0;
  int64_t simulated_ns = 0;
  double ratio = 0;
  plan::OverlapAchieved local;
  plan::OverlapAchieved hidden;
  plan::OverlapAchieved exposed;
};

void add(const plan::OverlapAchieved& one, plan::OverlapAchieved& sum) {
  sum.count += one.count;
  sum.hidden += one.hidden;
  sum.exposed += one.exposed;
  sum.exposed_ns += one.exposed_ns;
}

Whole whole_of(const std::vector<TracedPipeline>& pipelines) {
  Whole whole;
  for (const TracedPipeline& pipeline : pipelines) {
    const plan::Comparison& comparison = pipeline.comparison;
    if (comparison.measured_ns >= whole.measured_ns) {
      whole.measured_ns = comparison.measured_ns;
      whole.simulated_ns = comparison.simulated_ns;
      whole.ratio = comparison.ratio;
    }
    add(comparison.local, whole.local);
    add(comparison.hidden, whole.hidden);
    add(comparison.exposed, whole.exposed);
  }
  return whole;
}

struct NamedClass {
  const char* name;
  const plan::OverlapAchieved* overlap;
};
std::array<NamedClass, 3> classes_of(const Whole& whole) {
  return {{{"local", &whole.local}, {"hidden", &whole.hidden}, {"exposed", &whole.exposed}}};
}

// A rank of the job.
struct TracedRank {
  RankIndex rank;
  size_t pipeline = 0;
  const plan::ComparedRank* compared = nullptr;
};
std::vector<TracedRank> ranks_of(const std::vector<TracedPipeline>& pipelines) {
  std::vector<TracedRank> ranks;
  for (size_t pipeline = 0; pipeline < pipelines.size(); ++pipeline) {
    const TracedPipeline& traced = pipelines[pipeline];
    for (size_t place = 0; place < traced.group.ranks.size(); ++place)
      ranks.push_back({traced.group.ranks[place], pipeline, &traced.comparison.ranks[place]});
  }
  std::sort(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return ranks;
}

std::string rank_table(const std::vector<TracedPipeline>& pipelines) {
  using Align = plan::Table::Align;
  std::vector<plan::Table::Column> columns = {{"RANK", Align::Right},
                                              {"BUSY", Align::Right},
                                              {"CPU", Align::Right},
                                              {"BUBBLE", Align::Right},
                                              {"SIMULATED", Align::Right}};
  const bool several = pipelines.size() > 1;
  if (several) columns.insert(columns.begin() + 1, {"PIPELINE", Align::Right});
  plan::Table table(std::move(columns));
  for (const auto& [rank, pipeline, compared] : ranks_of(pipelines)) {
    std::vector<std::string> cells = {
        std::to_string(rank.value), plan::human_duration(seconds(compared->busy_ns)),
        plan::human_duration(seconds(compared->cpu_ns)), percent(compared->bubble_measured),
        percent(compared->bubble_simulated)};
    if (several) cells.insert(cells.begin() + 1, std::to_string(pipeline));
    table.add_row(std::move(cells));
  }
  return table.text();
}

std::string overlap_table(const Whole& whole) {
  using Align = plan::Table::Align;
  plan::Table table({{"HAND-OFFS", Align::Left},
                     {"COUNT", Align::Right},
                     {"HIDDEN", Align::Right},
                     {"EXPOSED", Align::Right},
                     {"WAITED", Align::Right}});
  for (const auto& [name, overlap] : classes_of(whole)) {
    const bool local = overlap == &whole.local;
    table.add_row({name, std::to_string(overlap->count), local ? "" : std::to_string(overlap->hidden),
                   local ? "" : std::to_string(overlap->exposed),
                   local ? "" : plan::human_duration(seconds(overlap->exposed_ns))});
  }
  return table.text();
}

void add_times(int64_t measured_ns, int64_t simulated_ns, double ratio, Json& json) {
  json["measured_seconds"] = seconds(measured_ns);
  json["simulated_seconds"] = seconds(simulated_ns);
  json["ratio"] = ratio;
}

}  // namespace

StatusOr<plan::MeasuredStep> measured_step(const v1::TraceResponse& trace) {
  plan::MeasuredStep step;
  for (const v1::StepTrace& rank : trace.ranks()) {
    const int64_t offset = offset_of(trace.ranks(0), rank);
    if (offset > kLongest || offset < -kLongest) {
      return invalid_argument("the trace of rank {} began {} ns after that of rank 0", rank.rank(), offset);
    }
    PENSTOCK_ASSIGN_OR_RETURN(plan::MeasuredRank measured, measured_rank(rank, offset));
    step.ranks.push_back(std::move(measured));
  }
  return step;
}

StatusOr<std::vector<TracedPipeline>> traced_pipelines(const plan::JobSpec& spec,
                                                       const plan::ComputeProgram& program,
                                                       const v1::TraceResponse& trace) {
  if (trace.ranks_size() != spec.ranks()) {
    return invalid_argument("the trace of step {}: expected {} ranks, as the job has, found {}", trace.step(),
                            spec.ranks(), trace.ranks_size());
  }
  PENSTOCK_ASSIGN_OR_RETURN(plan::MeasuredStep all, measured_step(trace));
  std::vector<TracedPipeline> pipelines;
  for (int pipeline = 0; pipeline < spec.parallel.pipelines(); ++pipeline) {
    TracedPipeline traced;
    traced.group = plan::pipeline_group(spec.parallel, pipeline);
    for (const RankIndex rank : traced.group.ranks)
      traced.step.ranks.push_back(std::move(all.ranks[static_cast<size_t>(rank.value)]));
    StatusOr<plan::Comparison> comparison = plan::compare(program, traced.step);
    if (!comparison.ok())
      return spec.parallel.pipelines() == 1 ? comparison.status()
                                            : with_context(comparison.status(), traced.group.name);
    traced.comparison = *std::move(comparison);
    pipelines.push_back(std::move(traced));
  }
  return pipelines;
}

std::string why_not_traced(const plan::ComputeProgram& program) {
  std::vector<int64_t> works;
  for (const auto& actions : program.actions) {
    const auto pairs = std::count_if(actions.begin(), actions.end(), [](const plan::Action& action) {
      return action.overlapped.has_value();
    });
    works.push_back(std::ssize(actions) + pairs);
  }
  const auto most = std::max_element(works.begin(), works.end());
  if (most == works.end() || *most <= static_cast<int64_t>(codec::kMostTraced)) return "";
  const std::string run = program.updates == 1 ? "a step" : fmt::format("{} steps", program.updates);
  return fmt::format("rank {} of a pipeline has {} works in {}, and a trace holds {}", most - works.begin(),
                     *most, run, codec::kMostTraced);
}

std::string trace_text(const v1::TraceResponse& trace, const std::vector<TracedPipeline>& pipelines) {
  const Whole whole = whole_of(pipelines);
  const std::string which =
      pipelines.size() == 1 ? "" : fmt::format(" (the slowest of {} pipelines)", pipelines.size());
  return fmt::format("step {}: {} measured, {} simulated, {:.3f} of it{}\n\n{}\n{}", trace.step(),
                     plan::human_duration(seconds(whole.measured_ns)),
                     plan::human_duration(seconds(whole.simulated_ns)), whole.ratio, which,
                     rank_table(pipelines), overlap_table(whole));
}

Json trace_json(const std::string& job, const v1::TraceResponse& trace,
                const std::vector<TracedPipeline>& pipelines) {
  const Whole whole = whole_of(pipelines);
  const bool several = pipelines.size() > 1;
  Json ranks = Json::array();
  for (const auto& [rank, pipeline, compared] : ranks_of(pipelines)) {
    Json one = {{"rank", rank.value}};
    if (several) one["pipeline"] = pipeline;
    one["busy_seconds"] = seconds(compared->busy_ns);
    one["cpu_seconds"] = seconds(compared->cpu_ns);
    one["bubble_measured"] = compared->bubble_measured;
    one["bubble_simulated"] = compared->bubble_simulated;
    ranks.push_back(std::move(one));
  }
  Json handoffs = Json::object();
  for (const auto& [name, overlap] : classes_of(whole)) {
    handoffs[name] = {{"count", overlap->count},
                      {"measured_hidden", overlap->hidden},
                      {"measured_exposed", overlap->exposed},
                      {"exposed_seconds", seconds(overlap->exposed_ns)}};
  }
  Json json = {{"job", job},
               {"step", trace.step()},
               {"steps", std::vector<int64_t>(trace.steps().begin(), trace.steps().end())}};
  add_times(whole.measured_ns, whole.simulated_ns, whole.ratio, json);
  json["ranks"] = std::move(ranks);
  json["handoffs"] = std::move(handoffs);
  if (!several) return json;
  json["pipelines"] = Json::array();
  for (size_t pipeline = 0; pipeline < pipelines.size(); ++pipeline) {
    const plan::Comparison& comparison = pipelines[pipeline].comparison;
    Json one = {{"pipeline", pipeline}};
    add_times(comparison.measured_ns, comparison.simulated_ns, comparison.ratio, one);
    json["pipelines"].push_back(std::move(one));
  }
  return json;
}

StatusOr<std::string> trace_perfetto(const plan::ComputeProgram& program,
                                     const std::vector<TracedPipeline>& pipelines) {
  std::vector<plan::Simulation> measured;
  for (const TracedPipeline& pipeline : pipelines) measured.push_back(plan::as_timeline(pipeline.step));
  std::vector<plan::TraceRow> rows;
  for (size_t i = 0; i < pipelines.size(); ++i) {
    const std::string of = pipelines.size() == 1 ? "" : pipelines[i].group.name + " ";
    rows.push_back({of + "measured", &measured[i]});
    rows.push_back({of + "simulated", &pipelines[i].comparison.simulation});
  }
  plan::TraceStyle style;
  const std::array<std::string, 1> nanosecond = {"0.000001"};  // of a millisecond
  PENSTOCK_ASSIGN_OR_RETURN(style.scale, plan::TickScale::for_numbers(nanosecond));
  return plan::timelines_trace(program, rows, style);
}

}  // namespace penstock::client
