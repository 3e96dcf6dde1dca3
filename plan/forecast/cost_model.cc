#include "plan/forecast/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "plan/interop/job_profile.h"
#include "plan/rebalancing/layer_fit.h"
#include "plan/spec/cost_source.h"

namespace penstock::plan {
namespace {

constexpr double kLongestSeconds = 1e6;  // of a layer
constexpr int64_t kLongestLatencyNs = 1'000'000'000;

bool is_rate(double rate) {
  return std::isfinite(rate) && rate >= 1e3 && rate <= 1e21;
}

int64_t in_ns(double seconds) {
  return std::llround(1e9 * std::min(seconds, kLongestSeconds));
}

struct TypeTimes {
  ItemTime microbatch;
  int64_t update_ns = 0;  // of a step
};

TypeTimes times_of(const JobSpec& job, const Item& item, const DeviceRates& rates) {
  const ItemOperations operations = operations_of(job, item);
  return {{in_ns(seconds_of(operations.forward, rates)), in_ns(seconds_of(operations.backward, rates))},
          in_ns(seconds_of(operations.update, rates))};
}

// A message is written and read as any other tensor.
JobCosts costs_at(const JobSpec& job, const DeviceRates& rates) {
  std::map<std::string, TypeTimes> by_type;  // blocks are many, and of few types
  std::vector<ItemTime> times;
  std::vector<int64_t> updates;
  for (const Item& item : model_items(job.model)) {
    const std::string type = cost_type_of(job, item);
    auto found = by_type.find(type);
    if (found == by_type.end()) found = by_type.emplace(type, times_of(job, item, rates)).first;
    times.push_back(found->second.microbatch);
    updates.push_back(found->second.update_ns);
  }
  const double message = 2 * static_cast<double>(job.boundary_bytes()) / rates.bytes_per_second;
  JobCosts costs{layers_of(job, times), std::min(kLongestLatencyNs, in_ns(message))};
  costs.layers.update_ns = std::move(updates);
  return costs;
}

// "100 G", "312 T".
std::string short_rate(double rate) {
  constexpr const char* kUnits[] = {"", "k", "M", "G", "T", "P", "E"};
  size_t unit = 0;
  for (; rate >= 1000 && unit + 1 < std::size(kUnits); ++unit) rate /= 1000;
  return fmt::format("{:.3g} {}", rate, kUnits[unit]);
}

// A block that the job recomputes runs its forward once more.
void add_recomputation(const JobSpec& job, LayerCosts& costs) {
  const std::vector<Item> items = model_items(job.model);
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].kind == ItemKind::Block && job.recomputes(items[i].layer))
      costs.layers[i].keep.time_ns += costs.forward_ns[i];
  }
}

}  // namespace

StatusOr<LayerCostModel> rates_model(const DeviceRates& rates) {
  if (!is_rate(rates.flops_per_second) || !is_rate(rates.bytes_per_second)) {
    return invalid_argument(
        "device rates: expected 1e3 to 1e21 a second, found {:g} operations and {:g} bytes",
        rates.flops_per_second, rates.bytes_per_second);
  }
  LayerCostModel model;
  model.source = fmt::format("rates of {}FLOP/s and {}B/s, not measurements",
                             short_rate(rates.flops_per_second), short_rate(rates.bytes_per_second));
  model.error = kRatesError;
  model.is_measured = false;
  model.costs = [rates](const JobSpec& job) -> StatusOr<JobCosts> { return costs_at(job, rates); };
  return model;
}

StatusOr<LayerCostModel> file_model(const std::string& text, const std::string& path) {
  const StatusOr<bool> any_size = times_follow_tokens(text);
  if (!any_size.ok()) return with_context(any_size.status(), path);
  LayerCostModel model;
  model.source = path;
  if (!*any_size) {
    model.one_size = fmt::format(
        "{} has times of one size of microbatch; `penstock fit` of stages measured at two sizes, each with its tokens, gives "
        "those of any",
        path);
  }
  model.costs = [text, path](const JobSpec& job) -> StatusOr<JobCosts> {
    PENSTOCK_ASSIGN_OR_RETURN(LayerCosts costs, job_times_from_json(text, path, job));
    add_recomputation(job, costs);
    return JobCosts{std::move(costs), 0};
  };
  return model;
}

StatusOr<std::optional<LayerCostModel>> emulated_model(const JobSpec& job) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<EmulatedCosts::Stage> known, costs_of_layers(job));
  if (known.empty()) return std::nullopt;
  LayerCostModel model;
  model.source = "device.costs";
  model.one_size = "device.costs has times of one size of microbatch";
  model.costs = [known](const JobSpec& planned) -> StatusOr<JobCosts> {
    std::vector<ItemTime> times;
    for (const EmulatedCosts::Stage& item : known) times.push_back({item.forward_ns, item.backward_ns});
    if (times.size() != model_items(planned.model).size())
      return invalid_argument("device.costs: costs of another model");
    const EmulatedCosts& costs = planned.device.costs;
    return JobCosts{layers_of(planned, times),
                    std::min(kLongestLatencyNs, costs.latency_ns + costs.message_ns)};
  };
  return model;
}

}  // namespace penstock::plan
