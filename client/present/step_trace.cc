#include "client/present/step_trace.h"

#include <array>
#include <nlohmann/json.hpp>

#include "plan/render/human.h"
#include "plan/render/perfetto.h"
#include "plan/render/table.h"
#include "plan/schedule/dataflow.h"
#include "plan/simulation/costs.h"

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

plan::Passage passage_of(const v1::TracedWait& wait) {
  const int64_t before = wait.gradient() ? 1 : -1;
  return {StageIndex(wait.stage() + before), StageIndex(wait.stage()), MicrobatchIndex(wait.microbatch()),
          wait.gradient() ? plan::Flow::Gradient : plan::Flow::Activation};
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
    measured.waits.push_back({passage_of(wait), start, start + wait.took_ns()});
  }
  return measured;
}

std::string percent(double share) {
  return fmt::format("{:.1f}%", 100 * share);
}

struct NamedClass {
  const char* name;
  const plan::OverlapAchieved* overlap;
};
std::array<NamedClass, 3> classes_of(const plan::Comparison& comparison) {
  return {{{"local", &comparison.local}, {"hidden", &comparison.hidden}, {"exposed", &comparison.exposed}}};
}

std::string rank_table(const plan::Comparison& comparison) {
  using Align = plan::Table::Align;
  plan::Table table({{"RANK", Align::Right},
                     {"BUSY", Align::Right},
                     {"CPU", Align::Right},
                     {"BUBBLE", Align::Right},
                     {"SIMULATED", Align::Right}});
  for (size_t rank = 0; rank < comparison.ranks.size(); ++rank) {
    const plan::ComparedRank& compared = comparison.ranks[rank];
    table.add_row({std::to_string(rank), plan::human_duration(seconds(compared.busy_ns)),
                   plan::human_duration(seconds(compared.cpu_ns)), percent(compared.bubble_measured),
                   percent(compared.bubble_simulated)});
  }
  return table.text();
}

std::string overlap_table(const plan::Comparison& comparison) {
  using Align = plan::Table::Align;
  plan::Table table({{"HAND-OFFS", Align::Left},
                     {"COUNT", Align::Right},
                     {"HIDDEN", Align::Right},
                     {"EXPOSED", Align::Right},
                     {"WAITED", Align::Right}});
  for (const auto& [name, overlap] : classes_of(comparison)) {
    const bool local = overlap == &comparison.local;
    table.add_row({name, std::to_string(overlap->count), local ? "" : std::to_string(overlap->hidden),
                   local ? "" : std::to_string(overlap->exposed),
                   local ? "" : plan::human_duration(seconds(overlap->exposed_ns))});
  }
  return table.text();
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

std::string trace_text(const v1::TraceResponse& trace, const plan::Comparison& comparison) {
  return fmt::format("step {}: {} measured, {} simulated, {:.3f} of it\n\n{}\n{}", trace.step(),
                     plan::human_duration(seconds(comparison.measured_ns)),
                     plan::human_duration(seconds(comparison.simulated_ns)), comparison.ratio,
                     rank_table(comparison), overlap_table(comparison));
}

Json trace_json(const std::string& job, const v1::TraceResponse& trace, const plan::Comparison& comparison) {
  Json ranks = Json::array();
  for (size_t rank = 0; rank < comparison.ranks.size(); ++rank) {
    const plan::ComparedRank& compared = comparison.ranks[rank];
    ranks.push_back({{"rank", rank},
                     {"busy_seconds", seconds(compared.busy_ns)},
                     {"cpu_seconds", seconds(compared.cpu_ns)},
                     {"bubble_measured", compared.bubble_measured},
                     {"bubble_simulated", compared.bubble_simulated}});
  }
  Json handoffs = Json::object();
  for (const auto& [name, overlap] : classes_of(comparison)) {
    handoffs[name] = {{"count", overlap->count},
                      {"measured_hidden", overlap->hidden},
                      {"measured_exposed", overlap->exposed},
                      {"exposed_seconds", seconds(overlap->exposed_ns)}};
  }
  return {{"job", job},
          {"step", trace.step()},
          {"steps", std::vector<int64_t>(trace.steps().begin(), trace.steps().end())},
          {"measured_seconds", seconds(comparison.measured_ns)},
          {"simulated_seconds", seconds(comparison.simulated_ns)},
          {"ratio", comparison.ratio},
          {"ranks", std::move(ranks)},
          {"handoffs", std::move(handoffs)}};
}

StatusOr<std::string> trace_perfetto(const plan::ComputeProgram& program, const plan::MeasuredStep& step,
                                     const plan::Comparison& comparison) {
  const plan::Simulation measured = plan::as_timeline(step);
  plan::TraceStyle style;
  const std::array<std::string, 1> nanosecond = {"0.000001"};  // of a millisecond
  PENSTOCK_ASSIGN_OR_RETURN(style.scale, plan::TickScale::for_numbers(nanosecond));
  return plan::timelines_trace(program, {{"measured", &measured}, {"simulated", &comparison.simulation}},
                               style);
}

}  // namespace penstock::client
