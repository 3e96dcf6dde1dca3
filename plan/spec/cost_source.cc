#include "plan/spec/cost_source.h"

#include <fmt/format.h>

#include "base/text.h"
#include "plan/spec/internal/scalar_text.h"
#include "plan/spec/internal/sections.h"
#include "plan/spec/internal/yaml_tree.h"
#include "plan/spec/limits.h"

namespace penstock::plan {
namespace {

// The path; null where there is none. It points into `root`.
const YamlNode* find_path(const YamlNode& root) {
  const YamlNode::Entry* device = root.find("device");
  const YamlNode::Entry* costs = device == nullptr ? nullptr : device->value.find("costs");
  return costs != nullptr && costs->value.is(YamlNode::Kind::Scalar) ? &costs->value : nullptr;
}

void add(std::vector<std::string>& keys, const char* key, const std::string& number) {
  if (!number.empty()) keys.push_back(fmt::format("{}: {}", key, number));
}

std::string stage_text(const CostNumbers::Stage& stage) {
  std::vector<std::string> keys;
  add(keys, "forward", stage.forward);
  add(keys, "input_gradient", stage.input_gradient);
  add(keys, "weight_gradient", stage.weight_gradient);
  add(keys, "backward", stage.backward);
  return "{" + join(keys) + "}";
}

std::string costs_text(const std::string& path, const CostNumbers& costs) {
  std::vector<std::string> keys = {"file: " + double_quoted(path)};
  add(keys, "overlapped_pair", costs.overlapped_pair);
  add(keys, "latency", costs.latency);
  add(keys, "bytes_per_second", costs.bytes_per_second);
  std::vector<std::string> stages;
  for (const CostNumbers::Stage& stage : costs.stages) stages.push_back(stage_text(stage));
  keys.push_back("stages: [" + join(stages) + "]");
  return "{" + join(keys) + "}";
}

}  // namespace

StatusOr<std::string> cost_source(const std::string& yaml) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode* path = find_path(root);
  return path == nullptr ? "" : path->text;
}

StatusOr<std::string> with_costs(const std::string& yaml, const CostNumbers& costs) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode* path = find_path(root);
  if (path == nullptr) return invalid_argument("device.costs: expected a path, found none");
  const std::optional<size_t> size = size_in_text(yaml, *path);
  if (!size || path->text.find_first_of("\r\n\t") != std::string::npos) {
    return invalid_argument("line {}: device.costs: expected a path on one line, found {}", path->line,
                            path->shown());
  }
  std::string text = yaml;
  text.replace(path->offset, *size, costs_text(path->text, costs));
  if (text.size() <= kLargestJobFileBytes) return text;
  return invalid_argument("line {}: device.costs: they make the job file {} bytes long, expected at most {}",
                          path->line, text.size(), kLargestJobFileBytes);
}

// As the job file is read, with every item a stage of its own.
StatusOr<std::vector<EmulatedCosts::Stage>> costs_of_layers(const JobSpec& job) {
  Problems problems;
  const YamlNode root = parse_yaml(job.yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode::Entry* device = root.find("device");
  const YamlNode::Entry* costs = device == nullptr ? nullptr : device->value.find("costs");
  if (costs == nullptr || costs->value.find("layers") == nullptr) return std::vector<EmulatedCosts::Stage>{};
  JobSpec by_item = job;
  by_item.device = {};
  by_item.parallel.split.clear();
  for (const Item& item : model_items(job.model)) by_item.parallel.split.push_back({item});
  Section file(root, "", root.line, problems);
  read_device(file.section("device"), by_item, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  return by_item.device.costs.stages;
}

}  // namespace penstock::plan
