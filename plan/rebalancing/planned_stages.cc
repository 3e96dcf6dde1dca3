#include "plan/rebalancing/planned_stages.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "plan/rebalancing/split_model.h"
#include "plan/spec/cost_source.h"
#include "plan/spec/split_source.h"

namespace penstock::plan {
namespace {

constexpr std::string_view kNote = "planned stages: ";
constexpr std::string_view kBetween = " | ";
constexpr std::string_view kOf = " ms of ";

using StageMs = std::optional<std::vector<double>>;

StageMs by_device(const JobSpec& job, const Split& split) {
  const StatusOr<std::vector<EmulatedCosts::Stage>> costs = costs_of_layers(job);
  const std::vector<Item> items = model_items(job.model);
  if (!costs.ok() || costs->size() != items.size()) return std::nullopt;
  std::map<std::string, double> ms_of_item;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto ns = static_cast<double>((*costs)[i].forward_ns + (*costs)[i].backward_ns);
    ms_of_item[to_string(items[i])] = ns / 1e6;
  }
  std::vector<double> ms;
  for (const std::vector<Item>& stage : split) {
    ms.push_back(0);
    for (const Item& item : stage) ms.back() += ms_of_item[to_string(item)];
  }
  return ms;
}

StageMs by_earlier_splits(const JobSpec& job, const std::vector<MeasuredRun>& runs) {
  std::vector<MeasuredRun> earlier;
  for (const MeasuredRun& run : runs) {
    if (run.split != runs.back().split) earlier.push_back(run);
  }
  if (earlier.empty()) return std::nullopt;
  const StatusOr<LayerFit> fitted = fit_runs(job, earlier);
  if (!fitted.ok()) return std::nullopt;
  std::vector<double> ms;
  for (const std::vector<Item>& stage : runs.back().split) ms.push_back(stage_ms(job, fitted->times, stage));
  return ms;
}

// The last line that says it: of a file that was planned twice the later one.
std::string_view noted(const std::string& yaml) {
  const size_t found = yaml.rfind(fmt::format("\n# {}", kNote));
  if (found == std::string::npos) return {};
  const std::string_view rest = std::string_view(yaml).substr(found + 3 + kNote.size());
  return rest.substr(0, rest.find_first_of("\r\n"));
}

// "39.5 ms of embedding 0-3"; nothing: of other items, or somebody has written into it.
std::optional<double> ms_of_stage(std::string_view text, const std::vector<Item>& items) {
  double ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (error != std::errc() || !std::isfinite(ms) || ms < 0) return std::nullopt;
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  if (rest != std::string(kOf) + items_text(items)) return std::nullopt;
  return ms;
}

StageMs by_submission(const JobSpec& job, const Split& split) {
  std::string_view text = noted(job.yaml);
  std::vector<double> ms;
  for (const std::vector<Item>& items : split) {
    const size_t end = text.find(kBetween);
    const std::optional<double> of_stage = ms_of_stage(text.substr(0, end), items);
    if (!of_stage) return std::nullopt;
    ms.push_back(*of_stage);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + kBetween.size());
  }
  return text.empty() ? StageMs(std::move(ms)) : std::nullopt;
}

std::vector<double> mean_of(const MeasuredRun& run) {
  double sum = 0;
  for (const auto& stage : run.stages) sum += 1e3 * (forward_seconds(stage) + backward_seconds(stage));
  return std::vector<double>(run.stages.size(), sum / static_cast<double>(run.stages.size()));
}

}  // namespace

PlannedStages planned_stages(const JobSpec& job, const std::vector<MeasuredRun>& runs) {
  const Split& split = runs.back().split;
  if (StageMs ms = by_device(job, split)) return {*std::move(ms), PlannedBy::DeviceCosts};
  if (StageMs ms = by_earlier_splits(job, runs)) return {*std::move(ms), PlannedBy::EarlierSplits};
  if (StageMs ms = by_submission(job, split)) return {*std::move(ms), PlannedBy::Submission};
  return {mean_of(runs.back()), PlannedBy::Mean};
}

std::string stages_note(const Split& split, const std::vector<double>& ms) {
  std::vector<std::string> stages;
  for (size_t stage = 0; stage < split.size(); ++stage)
    stages.push_back(fmt::format("{:.4g}{}{}", ms[stage], kOf, items_text(split[stage])));
  return std::string(kNote) + join(stages, kBetween);
}

}  // namespace penstock::plan
