#include "plan/spec/same_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "base/text.h"
#include "plan/schedule/families.h"
#include "plan/spec/internal/flushes.h"
#include "plan/spec/internal/yaml_tree.h"
#include "plan/spec/model_source.h"

namespace penstock::plan {
namespace {

constexpr const char* kSections[] = {"model", "data", "train"};

struct Difference {
  int line = 0;
  std::string field;
  std::string before;
  std::string after;
};

Status differs(const Difference& found) {
  return invalid_argument("line {}: {}: expected {}, as the job has it, found {}", found.line, found.field,
                          found.before, found.after);
}

void compare(const YamlNode& before, const YamlNode& after, const std::string& field,
             std::vector<Difference>& found);

void compare_maps(const YamlNode& before, const YamlNode& after, const std::string& field,
                  std::vector<Difference>& found) {
  for (const YamlNode::Entry& entry : before.entries) {
    const std::string name = field + "." + entry.key;
    if (const YamlNode::Entry* same = after.find(entry.key)) {
      compare(entry.value, same->value, name, found);
    } else {
      found.push_back({after.line, name, entry.value.shown(), "no such key"});
    }
  }
  for (const YamlNode::Entry& entry : after.entries) {
    if (before.find(entry.key) == nullptr)
      found.push_back({entry.line, field + "." + entry.key, "no such key", entry.value.shown()});
  }
}

void compare(const YamlNode& before, const YamlNode& after, const std::string& field,
             std::vector<Difference>& found) {
  if (before.kind != after.kind || before.text != after.text || before.items.size() != after.items.size()) {
    found.push_back({after.line, field, before.shown(), after.shown()});
    return;
  }
  compare_maps(before, after, field, found);
  for (size_t i = 0; i < before.items.size(); ++i)
    compare(before.items[i], after.items[i], fmt::format("{}[{}]", field, i), found);
}

// The value as it is written, or what stands for one that is not.
std::string value_of(const YamlNode& root, const char* section, const char* key, const std::string& usual) {
  const YamlNode::Entry* found = root.find(section);
  const YamlNode::Entry* value = found == nullptr ? nullptr : found->value.find(key);
  return value == nullptr ? usual : value->value.text;
}

int line_of(const YamlNode& root, const char* section, const char* key) {
  const YamlNode::Entry* found = root.find(section);
  if (found == nullptr) return root.line;
  const YamlNode::Entry* value = found->value.find(key);
  return value == nullptr ? found->line : value->line;
}

struct Key {
  const char* section;
  const char* key;
  const char* usual;
};
constexpr Key kKept[] = {{"device", "kind", "cpu"}, {"checkpoint", "directory", "the coordinator's"}};

Status compare_keys(const YamlNode& before, const YamlNode& after, std::span<const Key> keys) {
  for (const auto& [section, key, usual] : keys) {
    const std::string had = value_of(before, section, key, usual), has = value_of(after, section, key, usual);
    if (had != has)
      return differs({line_of(after, section, key), fmt::format("{}.{}", section, key), had, has});
  }
  return ok_status();
}

// "/state/step-000000050", or "no such key".
std::string start_of(const YamlNode& root) {
  const YamlNode::Entry* restart = root.find("restart");
  const YamlNode::Entry* from = restart == nullptr ? nullptr : restart->value.find("from");
  if (from == nullptr) return "no such key";
  const YamlNode::Entry* path = from->value.find("path");
  return path == nullptr ? from->value.shown() : path->value.text;
}

Status compare_texts(const std::string& before, const std::string& after) {
  Problems problems;
  const YamlNode old_root = parse_yaml(before, problems);
  const YamlNode new_root = parse_yaml(after, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  std::vector<Difference> found;
  for (const char* section : kSections) {
    const YamlNode::Entry* had = old_root.find(section);
    const YamlNode::Entry* has = new_root.find(section);
    if (had == nullptr || has == nullptr)
      return differs({new_root.line, section, "a section in both files", "none in one of them"});
    compare(had->value, has->value, section, found);
  }
  if (!found.empty()) return differs(found.front());
  if (start_of(old_root) != start_of(new_root)) {
    return differs(
        {line_of(new_root, "restart", "from"), "restart.from", start_of(old_root), start_of(new_root)});
  }
  return compare_keys(old_root, new_root, kKept);
}

std::string shown(const Split& split) {
  std::vector<std::string> stages;
  for (const std::vector<Item>& items : split) {
    std::vector<std::string> names;
    for (const Item& item : items) names.push_back(to_string(item));
    stages.push_back("[" + join(names) + "]");
  }
  return join(stages);
}

// The resolved values: defaults follow from other sections, as that of flush_every from checkpoint.every.
Status compare_weight_versions(const JobSpec& before, const JobSpec& after) {
  if (!before.is_asynchronous() && !after.is_asynchronous()) return ok_status();
  const ParallelSpec &old_cut = before.parallel, &new_cut = after.parallel;
  const auto same = [&](const char* field, const auto& had, const auto& has) {
    if (had == has) return ok_status();
    return invalid_argument("{}: expected {}, as the job has it, found {}{}; weight versions follow from it",
                            place_of(after, field), had, has,
                            after.lines.contains(field) ? "" : " (the default)");
  };
  PENSTOCK_RETURN_IF_ERROR(same("parallel.schedule", old_cut.schedule, new_cut.schedule));
  PENSTOCK_RETURN_IF_ERROR(same("parallel.pipeline", old_cut.pipeline, new_cut.pipeline));
  PENSTOCK_RETURN_IF_ERROR(same("parallel.flush_every", old_cut.flush_every, new_cut.flush_every));
  if (versions_differ_by_stage(new_cut.schedule))
    PENSTOCK_RETURN_IF_ERROR(same("parallel.split", shown(old_cut.split), shown(new_cut.split)));
  if (before.microbatches() == after.microbatches()) return ok_status();
  return invalid_argument(
      "{}: expected {} microbatches of each pipeline in a step, as the job has it, found {} with expert {} and data "
      "{}; weight versions follow from their number",
      place_of(after, new_cut.data == old_cut.data ? "parallel.expert" : "parallel.data"),
      before.microbatches(), after.microbatches(), new_cut.expert, new_cut.data);
}

// A capacity goes by the part of a microbatch that is routed at once.
Status compare_capacity(const JobSpec& before, const JobSpec& after) {
  if (before.model.moe.capacity_factor == 0 || before.two_batch_overlap == after.two_batch_overlap)
    return ok_status();
  return invalid_argument(
      "{}: expected {}, as the job has it, found {}; with model.moe.capacity_factor each half drops tokens of its own",
      place_of(after, "two_batch_overlap"), before.two_batch_overlap, after.two_batch_overlap);
}

// What a step's work does not depend on; parallel's split is left out beside it.
constexpr std::array kNoWork = {"name",    "validation",    "trace",    "checkpoint",
                                "restart", "memory_budget", "rebalance"};

YamlNode without_split(const YamlNode& root) {
  YamlNode rest = root;
  std::erase_if(rest.entries, [](const YamlNode::Entry& section) {
    return std::find(kNoWork.begin(), kNoWork.end(), section.key) != kNoWork.end();
  });
  for (YamlNode::Entry& section : rest.entries) {
    if (section.key == "parallel")
      std::erase_if(section.value.entries, [](const YamlNode::Entry& key) { return key.key == "split"; });
  }
  return rest;
}

// Its order of microbatches may be another than that of most.
bool may_have_sums_of_its_own(const ParallelSpec& cut) {
  return cut.schedule.starts_with("file:") || adds_in_an_order_of_its_own(cut.schedule);
}

}  // namespace

Status check_same_training(const JobSpec& before, const JobSpec& after) {
  PENSTOCK_RETURN_IF_ERROR(compare_texts(before.yaml, after.yaml));
  PENSTOCK_RETURN_IF_ERROR(compare_capacity(before, after));
  return compare_weight_versions(before, after);
}

std::string other_sums(const JobSpec& before, const JobSpec& after) {
  std::vector<std::string> changes;
  const auto degree = [&](const char* key, int had, int has) {
    if (had != has) changes.push_back(fmt::format("{} {} in place of {}", key, has, had));
  };
  degree("parallel.expert", before.parallel.expert, after.parallel.expert);
  degree("parallel.data", before.parallel.data, after.parallel.data);
  if (before.two_batch_overlap != after.two_batch_overlap)
    changes.push_back(after.two_batch_overlap ? "two_batch_overlap" : "no two_batch_overlap");
  const ParallelSpec &old_cut = before.parallel, &new_cut = after.parallel;
  const bool is_another = old_cut.schedule != new_cut.schedule || old_cut.program != new_cut.program;
  if (is_another && (may_have_sums_of_its_own(old_cut) || may_have_sums_of_its_own(new_cut))) {
    changes.push_back(
        old_cut.schedule == new_cut.schedule
            ? fmt::format("another program of parallel.schedule {}", new_cut.schedule)
            : fmt::format("parallel.schedule {} in place of {}", new_cut.schedule, old_cut.schedule));
  }
  return join(changes);
}

std::vector<std::string> training_differences(const JobSpec& before, const JobSpec& after) {
  std::vector<std::string> texts;
  // A model may be written by its keys or by a folder.
  const auto keys_of = [](const ModelSpec& model) {
    std::vector<std::string> keys = model_keys(model);
    keys.push_back(fmt::format("hidden_dropout: {}", model.hidden_dropout));
    return keys;
  };
  const std::vector<std::string> had = keys_of(before.model), has = keys_of(after.model);
  for (const std::string& key : has) {
    if (std::find(had.begin(), had.end(), key) == had.end())
      texts.push_back("model." + key + " here, not there");
  }
  Problems problems;
  const YamlNode old_root = parse_yaml(before.yaml, problems), new_root = parse_yaml(after.yaml, problems);
  std::vector<Difference> found;
  for (const char* section : {"data", "train"}) {
    const YamlNode::Entry* old_section = old_root.find(section);
    const YamlNode::Entry* new_section = new_root.find(section);
    if (old_section != nullptr && new_section != nullptr)
      compare(old_section->value, new_section->value, section, found);
  }
  for (const Difference& one : found)
    texts.push_back(fmt::format("{}: {} there, {} here", one.field, one.before, one.after));
  if (const std::string sums = other_sums(before, after); !sums.empty())
    texts.push_back("sums in another order: " + sums);
  for (const Status& same : {compare_capacity(before, after), compare_weight_versions(before, after)}) {
    if (!same.ok()) texts.push_back(message(same));
  }
  return texts;
}

bool keeps_bits_under_any_split(const JobSpec& job) {
  return !versions_differ_by_stage(job.parallel.schedule);
}

bool differ_by_split_alone(const JobSpec& before, const JobSpec& after) {
  Problems problems;
  const YamlNode old_root = parse_yaml(before.yaml, problems);
  const YamlNode new_root = parse_yaml(after.yaml, problems);
  std::vector<Difference> found;
  compare(without_split(old_root), without_split(new_root), "", found);
  return problems.status().ok() && found.empty();
}

}  // namespace penstock::plan
