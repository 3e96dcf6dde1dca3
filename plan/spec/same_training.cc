#include "plan/spec/same_training.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "base/text.h"
#include "plan/spec/internal/flushes.h"
#include "plan/spec/internal/yaml_tree.h"

namespace penstock::plan {
namespace {

constexpr const char* kSections[] = {"model", "data", "train"};

Status differs(int line, const std::string& field, const std::string& expected, const std::string& found) {
  return invalid_argument("line {}: {}: expected {}, as the job has it, found {}", line, field, expected,
                          found);
}

Status compare(const YamlNode& before, const YamlNode& after, const std::string& field);

Status compare_maps(const YamlNode& before, const YamlNode& after, const std::string& field) {
  for (const YamlNode::Entry& entry : before.entries) {
    const std::string name = field + "." + entry.key;
    const YamlNode::Entry* found = after.find(entry.key);
    if (found == nullptr) return differs(after.line, name, entry.value.shown(), "no such key");
    PENSTOCK_RETURN_IF_ERROR(compare(entry.value, found->value, name));
  }
  for (const YamlNode::Entry& entry : after.entries) {
    if (before.find(entry.key) == nullptr)
      return differs(entry.line, field + "." + entry.key, "no such key", entry.value.shown());
  }
  return ok_status();
}

Status compare_lists(const YamlNode& before, const YamlNode& after, const std::string& field) {
  if (before.items.size() != after.items.size())
    return differs(after.line, field, before.shown(), after.shown());
  for (size_t i = 0; i < before.items.size(); ++i)
    PENSTOCK_RETURN_IF_ERROR(compare(before.items[i], after.items[i], fmt::format("{}[{}]", field, i)));
  return ok_status();
}

Status compare(const YamlNode& before, const YamlNode& after, const std::string& field) {
  if (before.kind != after.kind || before.text != after.text)
    return differs(after.line, field, before.shown(), after.shown());
  PENSTOCK_RETURN_IF_ERROR(compare_maps(before, after, field));
  return compare_lists(before, after, field);
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
constexpr Key kSchedule{"parallel", "schedule", "1f1b"};
constexpr Key kKept[] = {{"device", "kind", "cpu"}, {"checkpoint", "directory", "the coordinator's"}};
constexpr Key kKeptWithoutFlush[] = {
    kSchedule, {"parallel", "pipeline", "1"}, {"parallel", "flush_every", "its default"}};

Status compare_keys(const YamlNode& before, const YamlNode& after, std::span<const Key> keys) {
  for (const auto& [section, key, usual] : keys) {
    const std::string had = value_of(before, section, key, usual), has = value_of(after, section, key, usual);
    if (had != has)
      return differs(line_of(after, section, key), fmt::format("{}.{}", section, key), had, has);
  }
  return ok_status();
}

bool is_without_flush(const YamlNode& root) {
  return runs_without_flush(value_of(root, kSchedule.section, kSchedule.key, kSchedule.usual));
}

}  // namespace

Status check_same_training(const std::string& before, const std::string& after) {
  Problems problems;
  const YamlNode old_root = parse_yaml(before, problems);
  const YamlNode new_root = parse_yaml(after, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  for (const char* section : kSections) {
    const YamlNode::Entry* had = old_root.find(section);
    const YamlNode::Entry* has = new_root.find(section);
    if (had == nullptr || has == nullptr)
      return differs(new_root.line, section, "a section in both files", "none in one of them");
    PENSTOCK_RETURN_IF_ERROR(compare(had->value, has->value, section));
  }
  PENSTOCK_RETURN_IF_ERROR(compare_keys(old_root, new_root, kKept));
  if (!is_without_flush(old_root) && !is_without_flush(new_root)) return ok_status();
  return compare_keys(old_root, new_root, kKeptWithoutFlush);
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
  return join(changes);
}

}  // namespace penstock::plan
