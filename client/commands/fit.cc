#include "client/commands/commands.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "plan/calibration/layer_times.h"
#include "plan/interop/measured_stages.h"
#include "plan/render/table.h"

namespace penstock::client {
namespace {

using plan::Table;

constexpr size_t kMeasuredFileBytesMax = size_t{64} << 20;

struct Fit {
  plan::FittedTimes fitted;
  std::vector<plan::StageTime> predicted;
};

StatusOr<Fit> fit_file(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(path, kMeasuredFileBytesMax));
  PENSTOCK_ASSIGN_OR_RETURN(const plan::MeasuredStages measured, plan::measured_stages_from_json(text, path));
  StatusOr<plan::FittedTimes> fitted = plan::fit_layer_times(measured.stages);
  if (!fitted.ok()) return with_context(fitted.status(), path);
  Fit fit{*std::move(fitted), {}};
  for (size_t i = 0; i < measured.predict.size(); ++i) {
    const auto stage =
        plan::predict_stage(fit.fitted, measured.predict[i].layers, measured.predict[i].tokens);
    if (!stage.ok()) return with_context(stage.status(), fmt::format("{}: predict[{}]", path, i));
    fit.predicted.push_back(*stage);
  }
  return fit;
}

std::string cost_text(const plan::LayerTime& time, bool by_tokens) {
  if (!by_tokens) return fmt::format("{:.4g}ms", time.fixed_ms);
  return fmt::format("{:.4g}ms + {:.4g}us a token", time.fixed_ms, 1000 * time.per_token_ms);
}

std::string fit_text(const Fit& fit) {
  Table types({{"TYPE"}, {"FORWARD", Table::Align::Right}, {"BACKWARD", Table::Align::Right}});
  for (const auto& [type, times] : fit.fitted.types) {
    types.add_row({type, cost_text(times.forward, fit.fitted.by_tokens),
                   cost_text(times.backward, fit.fitted.by_tokens)});
  }
  std::string text = types.text();
  for (const auto& [worker, factor] : fit.fitted.worker_factors) {
    text += fmt::format("worker {} takes {:.3f} times as long as the median one\n", worker, factor);
  }
  text += fmt::format(
      "measured stages are met within {:.2f} % on average, {:.2f} % at most; {} more than the costs need\n",
      fit.fitted.mean_error_percent, fit.fitted.largest_error_percent, fit.fitted.degrees_of_freedom);
  if (fit.predicted.empty()) return text;
  Table predicted({{"PREDICTED", Table::Align::Right},
                   {"FORWARD", Table::Align::Right},
                   {"BACKWARD", Table::Align::Right}});
  for (size_t i = 0; i < fit.predicted.size(); ++i) {
    predicted.add_row({fmt::format("{}", i), fmt::format("{:.4g}ms", fit.predicted[i].forward_ms),
                       fmt::format("{:.4g}ms", fit.predicted[i].backward_ms)});
  }
  return text + predicted.text();
}

}  // namespace

int fit(const FitOptions& options) {
  const StatusOr<Fit> fit = fit_file(options.file);
  if (!fit.ok()) return report_error(fit.status());
  print(options.output == "json" ? plan::fitted_to_json(fit->fitted, fit->predicted) : fit_text(*fit));
  return kExitSucceeded;
}

}  // namespace penstock::client
