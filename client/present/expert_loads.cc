#include "client/present/expert_loads.h"

#include <algorithm>
#include <numeric>

#include "plan/spec/rank_place.h"

namespace penstock::client {

std::vector<LayerRows> layer_rows(const v1::AttemptMeasurements& attempt) {
  std::vector<LayerRows> layers;
  for (const v1::LayerLoad& load : attempt.expert_loads()) {
    if (load.rows().empty() || load.steps() <= 0) continue;
    const auto steps = static_cast<double>(load.steps());
    const auto [least, most] = std::minmax_element(load.rows().begin(), load.rows().end());
    const auto all = static_cast<double>(std::accumulate(load.rows().begin(), load.rows().end(), int64_t{0}));
    LayerRows& layer = layers.emplace_back();
    layer.layer = load.layer();
    layer.stage = load.stage();
    layer.experts = load.rows_size();
    layer.least = static_cast<double>(*least) / steps;
    layer.most = static_cast<double>(*most) / steps;
    layer.mean = all / static_cast<double>(load.rows_size()) / steps;
    layer.ratio = all > 0 ? layer.most / layer.mean : 0;
  }
  return layers;
}

std::vector<plan::RoutedStage> routed_stages(const v1::AttemptMeasurements& attempt) {
  std::vector<plan::RoutedStage> stages;
  for (const v1::StageHistory& history : attempt.history().stages()) {
    stages.push_back({.stage = history.stage(),
                      .load = {history.load().begin(), history.load().end()},
                      .seconds = {history.seconds().begin(), history.seconds().end()}});
  }
  return stages;
}

double load_of_rank(const v1::AttemptMeasurements& attempt, const plan::JobSpec& job, int stage, int rank) {
  if (job.parallel.expert == 1) return 0;
  const plan::ExpertRange experts =
      plan::experts_at(job, plan::place_of_rank(job.parallel, RankIndex(int64_t{rank})));
  int64_t here = 0, all = 0;
  for (const v1::LayerLoad& load : attempt.expert_loads()) {
    if (load.stage() != stage) continue;
    for (int expert = 0; expert < load.rows_size(); ++expert) {
      all += load.rows(expert);
      if (expert >= experts.first && expert < experts.end) here += load.rows(expert);
    }
  }
  return all > 0 ? static_cast<double>(here) * job.parallel.expert / static_cast<double>(all) : 0;
}

}  // namespace penstock::client
