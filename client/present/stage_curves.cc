#include "client/present/stage_curves.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text.h"
#include "client/present/job_words.h"
#include "plan/diagnosis/statistics.h"
#include "plan/render/bars.h"
#include "plan/render/curves_svg.h"
#include "plan/render/human.h"
#include "plan/render/table.h"
#include "plan/spec/split_source.h"

namespace penstock::client {
namespace {

using plan::Table;

constexpr int kBarWidth = 32;

double p95_ms(const std::vector<plan::StageSamples>& stage) {
  std::vector<double> totals;
  for (const plan::StageSamples& rank : stage) {
    for (size_t i = 0; i < rank.forward_seconds.size(); ++i)
      totals.push_back(1e3 * (rank.forward_seconds[i] + rank.backward_seconds[i]));
  }
  return plan::quantile(totals, 0.95);
}

std::vector<RankMemory> memory_of(const v1::MeasurementsResponse& response) {
  std::map<int, RankMemory> ranks;
  for (const v1::StageStatus& stage : response.stages()) {
    ranks[stage.rank()] = {stage.rank(), stage.memory_peak_bytes(), stage.memory_predicted_bytes(), {}};
  }
  for (const v1::RankMemory& rank : response.attempts().rbegin()->memory()) {
    const auto known = ranks.find(rank.rank());
    if (known == ranks.end()) continue;
    for (const v1::MemoryUse& use : rank.kinds())
      known->second.kinds.push_back({use.kind(), use.peak_bytes(), use.predicted_bytes()});
  }
  std::vector<RankMemory> memory;
  for (const auto& [rank, of_rank] : ranks) memory.push_back(of_rank);
  return memory;
}

std::vector<RankWaits> waits_of(const v1::AttemptMeasurements& attempt) {
  std::map<int, RankWaits> ranks;
  for (const v1::MeasuredSeries& series : attempt.series()) {
    const double ms = 1e3 * series.median_seconds();
    if (series.kind() == v1::MEASURED_KIND_WAIT) ranks[series.rank()].wait_ms = ms;
    if (series.kind() == v1::MEASURED_KIND_WAIT_DEPENDENCY) ranks[series.rank()].dependency_ms = ms;
    if (series.kind() == v1::MEASURED_KIND_WAIT_TRANSFER) ranks[series.rank()].transfer_ms = ms;
  }
  std::vector<RankWaits> waits;
  for (auto& [rank, of_rank] : ranks) {
    of_rank.rank = rank;
    waits.push_back(of_rank);
  }
  return waits;
}

int64_t largest_rank_of(const v1::AttemptMeasurements& attempt) {
  int64_t largest = 0;
  for (const v1::RankMemory& rank : attempt.memory()) {
    int64_t bytes = 0;
    for (const v1::MemoryUse& use : rank.kinds()) bytes += use.peak_bytes();
    largest = std::max(largest, bytes);
  }
  return largest;
}

std::string optional_ms(const std::optional<double>& ms) {
  return ms ? ms_text(*ms) : "";
}

std::string waits_table(const StageCurves& curves) {
  using enum Table::Align;
  Table table({{"RANK", Right}, {"WAIT", Right}, {"DEPENDENCY", Right}, {"TRANSFER", Right}});
  for (const RankWaits& rank : curves.waits)
    table.add_row({fmt::format("{}", rank.rank), ms_text(rank.wait_ms), optional_ms(rank.dependency_ms),
                   optional_ms(rank.transfer_ms)});
  return curves.waits.empty() ? "" : "\n" + table.text();
}

std::string experts_table(const StageCurves& curves) {
  using enum Table::Align;
  Table table({{"LAYER", Right},
               {"STAGE", Right},
               {"EXPERTS", Right},
               {"ROWS: MIN", Right},
               {"MEAN", Right},
               {"MAX", Right},
               {"MAX/MEAN", Right}});
  for (const LayerRows& layer : curves.layers)
    table.add_row({fmt::format("{}", layer.layer), fmt::format("{}", layer.stage),
                   fmt::format("{}", layer.experts), fmt::format("{:.0f}", layer.least),
                   fmt::format("{:.0f}", layer.mean), fmt::format("{:.0f}", layer.most),
                   fmt::format("{:.2f}", layer.ratio)});
  return curves.layers.empty() ? "" : "\n" + table.text();
}

// Nothing to compare where there is one.
std::string attempts_table(const StageCurves& curves) {
  using enum Table::Align;
  if (curves.attempts.size() < 2) return "";
  Table table({{"ATTEMPT", Right}, {"SCHEDULE"}, {"STEPS", Right}, {"STEP", Right}, {"LARGEST RANK", Right}});
  for (const AttemptFigures& each : curves.attempts)
    table.add_row({fmt::format("{}", each.attempt), each.schedule, fmt::format("{}", each.steps),
                   ms_text(each.step_ms),
                   each.largest_rank_bytes > 0 ? plan::human_bytes(each.largest_rank_bytes) : ""});
  return "\n" + table.text();
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(fmt::format("{}", rank));
  return list_cut(texts);
}

const char* planned_name(const StageCurves& curves) {
  switch (curves.planned_by) {
    case plan::PlannedBy::DeviceCosts:
      return "what device.costs say";
    case plan::PlannedBy::EarlierSplits:
      return "what the costs of earlier splits said of this one";
    case plan::PlannedBy::Submission:
      return "what was planned when the job was submitted";
    case plan::PlannedBy::Mean:
      break;
  }
  return "the mean of the stages, since nothing was planned";
}

const char* planned_key(const StageCurves& curves) {
  switch (curves.planned_by) {
    case plan::PlannedBy::DeviceCosts:
      return "device.costs";
    case plan::PlannedBy::EarlierSplits:
      return "costs";
    case plan::PlannedBy::Submission:
      return "submit";
    case plan::PlannedBy::Mean:
      break;
  }
  return "mean";
}

std::string stage_table(const StageCurves& curves, plan::Glyphs glyphs) {
  using enum Table::Align;
  Table table({{"STAGE", Right},
               {"RANK", Right},
               {"ITEMS"},
               {"TIME", Right},
               {"P95", Right},
               {curves.planned_by == plan::PlannedBy::Mean ? "MEAN" : "PLANNED", Right},
               {"TIME, PLANNED |"}});
  double largest = 0;
  for (const StageTimes& stage : curves.stages)
    largest = std::max({largest, stage.measured_ms, stage.planned_ms});
  for (const StageTimes& stage : curves.stages) {
    table.add_row({fmt::format("{}", stage.stage), ranks_text(stage.ranks), stage.items,
                   ms_text(stage.measured_ms), ms_text(stage.p95_ms), ms_text(stage.planned_ms),
                   plan::planned_bar(stage.measured_ms, stage.planned_ms, largest, kBarWidth, glyphs)});
  }
  return table.text();
}

std::string memory_table(const StageCurves& curves, plan::Glyphs glyphs) {
  using enum Table::Align;
  Table table({{"RANK", Right}, {"PEAK", Right}, {"PREDICTED", Right}, {"PEAK, PREDICTED |"}});
  int64_t largest = 0;
  for (const RankMemory& rank : curves.ranks)
    largest = std::max({largest, rank.peak_bytes, rank.predicted_bytes});
  for (const RankMemory& rank : curves.ranks) {
    table.add_row(
        {fmt::format("{}", rank.rank), rank.peak_bytes > 0 ? plan::human_bytes(rank.peak_bytes) : "",
         plan::human_bytes(rank.predicted_bytes),
         plan::planned_bar(static_cast<double>(rank.peak_bytes), static_cast<double>(rank.predicted_bytes),
                           static_cast<double>(largest), kBarWidth, glyphs)});
  }
  return table.text();
}

// Kinds by the most that a rank holds of each, largest first.
std::vector<std::string> kinds_by_size(const std::vector<RankMemory>& ranks) {
  std::map<std::string, int64_t> largest;
  for (const RankMemory& rank : ranks) {
    for (const KindMemory& use : rank.kinds) largest[use.kind] = std::max(largest[use.kind], use.peak_bytes);
  }
  std::vector<std::string> kinds;
  for (const auto& [kind, bytes] : largest) {
    if (bytes > 0) kinds.push_back(kind);
  }
  std::stable_sort(kinds.begin(), kinds.end(),
                   [&](const std::string& a, const std::string& b) { return largest[a] > largest[b]; });
  return kinds;
}

std::string upper(std::string text) {
  for (char& c : text) c = c == '_' ? ' ' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// A column for each of the `shown` largest kinds, and one for the others.
std::string kinds_table(const StageCurves& curves, const std::vector<std::string>& kinds, size_t shown) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{"RANK", Right}};
  for (size_t i = 0; i < shown; ++i) columns.push_back({upper(kinds[i]), Right});
  if (shown < kinds.size()) columns.push_back({"OTHERS", Right});
  Table table(columns);
  for (const RankMemory& rank : curves.ranks) {
    std::map<std::string, int64_t> left;
    for (const KindMemory& use : rank.kinds) left[use.kind] = use.peak_bytes;
    std::vector<std::string> cells = {fmt::format("{}", rank.rank)};
    for (size_t i = 0; i < shown; ++i) cells.push_back(plan::human_bytes(std::exchange(left[kinds[i]], 0)));
    int64_t others = 0;
    for (const auto& [kind, bytes] : left) others += bytes;
    if (shown < kinds.size()) cells.push_back(plan::human_bytes(others));
    table.add_row(std::move(cells));
  }
  return "\n" + table.text();
}

bool fits(const std::string& table, int columns) {
  size_t longest = 0;
  for (const std::string& line : split_on(table, '\n')) longest = std::max(longest, line.size());
  return longest <= static_cast<size_t>(columns);
}

std::string memory_by_kind(const StageCurves& curves, int columns) {
  const std::vector<std::string> kinds = kinds_by_size(curves.ranks);
  for (size_t shown = kinds.size(); shown > 0; --shown) {
    std::string table = kinds_table(curves, kinds, shown);
    if (fits(table, columns)) return table;
  }
  return "";
}

// The stage that is furthest above the mean of all, in a sentence.
std::string slowest_line(const StageCurves& curves) {
  const auto slowest = std::max_element(
      curves.stages.begin(), curves.stages.end(),
      [](const StageTimes& a, const StageTimes& b) { return a.measured_ms < b.measured_ms; });
  double sum = 0;
  for (const StageTimes& stage : curves.stages) sum += stage.measured_ms;
  const double mean = sum / static_cast<double>(curves.stages.size());
  return fmt::format("the slowest stage, {}, takes {:.2f} times the mean of {}\n", slowest->stage,
                     slowest->measured_ms / mean, ms_text(mean));
}

}  // namespace

StageCurves stage_curves(const std::string& name, const plan::JobSpec& job,
                         const v1::MeasurementsResponse& response,
                         const std::vector<plan::MeasuredRun>& runs) {
  const plan::MeasuredRun& run = runs.back();
  const plan::PlannedStages planned = plan::planned_stages(job, runs);
  StageCurves curves;
  curves.job = name;
  curves.attempt = response.attempts().rbegin()->attempt();
  curves.steps = response.attempts().rbegin()->steps();
  curves.step_seconds = plan::step_seconds(run);
  curves.planned_by = planned.by;
  for (size_t s = 0; s < run.stages.size(); ++s) {
    StageTimes& stage = curves.stages.emplace_back();
    stage.stage = static_cast<int>(s);
    for (const plan::StageSamples& rank : run.stages[s]) stage.ranks.push_back(rank.rank);
    stage.items = plan::items_text(run.split[s]);
    stage.measured_ms = 1e3 * (plan::forward_seconds(run.stages[s]) + plan::backward_seconds(run.stages[s]));
    stage.p95_ms = p95_ms(run.stages[s]);
    stage.planned_ms = planned.ms[s];
  }
  curves.ranks = memory_of(response);
  curves.waits = waits_of(*response.attempts().rbegin());
  curves.layers = layer_rows(*response.attempts().rbegin());
  for (int i = 0; i < response.attempts_size(); ++i) {
    const v1::AttemptMeasurements& attempt = response.attempts(i);
    curves.attempts.push_back({attempt.attempt(), attempt.schedule(), attempt.steps(),
                               1e3 * plan::step_seconds(runs[static_cast<size_t>(i)]),
                               largest_rank_of(attempt)});
  }
  return curves;
}

std::string curves_text(const StageCurves& curves, const CurvesStyle& style) {
  return fmt::format("job {}, attempt {}: {} measured, a step takes {}; planned is {}\n\n{}{}\n{}{}{}{}{}",
                     curves.job, curves.attempt, plan::counted(curves.steps, "step"),
                     ms_text(1e3 * curves.step_seconds), planned_name(curves),
                     stage_table(curves, style.glyphs), slowest_line(curves),
                     memory_table(curves, style.glyphs), memory_by_kind(curves, style.columns),
                     waits_table(curves), experts_table(curves), attempts_table(curves));
}

Json curves_json(const StageCurves& curves) {
  Json stages = Json::array();
  for (const StageTimes& stage : curves.stages) {
    stages.push_back({{"stage", stage.stage},
                      {"ranks", stage.ranks},
                      {"items", stage.items},
                      {"measured_ms", stage.measured_ms},
                      {"p95_ms", stage.p95_ms},
                      {"planned_ms", stage.planned_ms}});
  }
  Json ranks = Json::array();
  for (const RankMemory& rank : curves.ranks) {
    Json kinds = Json::object();
    for (const KindMemory& use : rank.kinds)
      kinds[use.kind] = {{"peak_bytes", use.peak_bytes}, {"predicted_bytes", use.predicted_bytes}};
    ranks.push_back({{"rank", rank.rank},
                     {"peak_bytes", rank.peak_bytes},
                     {"predicted_bytes", rank.predicted_bytes},
                     {"kinds", std::move(kinds)}});
  }
  Json waits = Json::array();
  for (const RankWaits& rank : curves.waits) {
    waits.push_back({{"rank", rank.rank},
                     {"wait_ms", rank.wait_ms},
                     {"dependency_ms", rank.dependency_ms ? Json(*rank.dependency_ms) : Json(nullptr)},
                     {"transfer_ms", rank.transfer_ms ? Json(*rank.transfer_ms) : Json(nullptr)}});
  }
  Json experts = Json::array();
  for (const LayerRows& layer : curves.layers) {
    experts.push_back({{"layer", layer.layer},
                       {"stage", layer.stage},
                       {"experts", layer.experts},
                       {"rows_min", layer.least},
                       {"rows_mean", layer.mean},
                       {"rows_max", layer.most},
                       {"max_over_mean", layer.ratio}});
  }
  Json attempts = Json::array();
  for (const AttemptFigures& each : curves.attempts) {
    attempts.push_back({{"attempt", each.attempt},
                        {"schedule", each.schedule},
                        {"steps", each.steps},
                        {"step_ms", each.step_ms},
                        {"largest_rank_bytes", each.largest_rank_bytes}});
  }
  return {{"job", curves.job},
          {"attempt", curves.attempt},
          {"steps", curves.steps},
          {"step_seconds", curves.step_seconds},
          {"planned", planned_key(curves)},
          {"stages", std::move(stages)},
          {"ranks", std::move(ranks)},
          {"waits", std::move(waits)},
          {"experts", std::move(experts)},
          {"attempts", std::move(attempts)}};
}

std::string curves_svg(const StageCurves& curves) {
  plan::Curve time{"forward and backward of a microbatch", planned_name(curves), {}};
  for (const StageTimes& stage : curves.stages) {
    time.points.push_back({fmt::format("stage {}", stage.stage), stage.measured_ms, stage.planned_ms,
                           ms_text(stage.measured_ms)});
  }
  plan::Curve memory{"peak memory", "the prediction", {}};
  for (const RankMemory& rank : curves.ranks) {
    memory.points.push_back({fmt::format("rank {}", rank.rank), static_cast<double>(rank.peak_bytes),
                             static_cast<double>(rank.predicted_bytes), plan::human_bytes(rank.peak_bytes)});
  }
  std::vector<plan::Curve> drawn = {std::move(time), std::move(memory)};
  if (!curves.layers.empty()) {
    plan::Curve& rows = drawn.emplace_back();
    rows.title = "rows of the busiest expert in a step";
    rows.planned_name = "the mean of the layer's experts";
    for (const LayerRows& layer : curves.layers)
      rows.points.push_back(
          {fmt::format("layer {}", layer.layer), layer.most, layer.mean, fmt::format("{:.0f}", layer.most)});
  }
  return plan::curves_svg(fmt::format("job {}, attempt {}: a step takes {}", curves.job, curves.attempt,
                                      ms_text(1e3 * curves.step_seconds)),
                          drawn);
}

}  // namespace penstock::client
