#include "plan/spec/split_source.h"

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "plan/spec/internal/scalar_text.h"
#include "plan/spec/internal/yaml_tree.h"

namespace penstock::plan {
namespace {

// Bytes from a '[' or '{' to what closes it. Words of a split hold no quotes; comments are jumped over.
std::optional<size_t> size_of_flow(const std::string& yaml, size_t offset) {
  int depth = 0;
  for (size_t i = offset; i < yaml.size(); ++i) {
    const char c = yaml[i];
    if (c == '#') i = std::min(yaml.find('\n', i), yaml.size() - 1);
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && --depth == 0) return i + 1 - offset;
  }
  return std::nullopt;
}

size_t column_of(const std::string& yaml, size_t offset) {
  const size_t line = offset == 0 ? std::string::npos : yaml.rfind('\n', offset - 1);
  return line == std::string::npos ? offset : offset - line - 1;
}

// Bytes of a block that begins at `offset`: its line and those behind it that stand as far right. A list may stand below its
// key, as far left as the keys beside it.
size_t size_of_block(const std::string& yaml, const YamlNode& node) {
  const size_t column = column_of(yaml, node.offset);
  size_t end = std::min(yaml.find('\n', node.offset), yaml.size());
  while (end < yaml.size()) {
    const size_t begin = end + 1;
    const size_t word = yaml.find_first_not_of(' ', begin);
    if (word == std::string::npos || yaml[word] == '\n' || word - begin < column) break;
    const bool is_next_key = node.is(YamlNode::Kind::List) && word - begin == column && yaml[word] != '-';
    if (is_next_key) break;
    end = std::min(yaml.find('\n', begin), yaml.size());
  }
  return end - node.offset;
}

std::optional<size_t> size_of(const std::string& yaml, const YamlNode& node) {
  if (node.offset >= yaml.size()) return std::nullopt;
  if (node.is(YamlNode::Kind::Scalar)) return size_in_text(yaml, node);
  const char first = yaml[node.offset];
  if (first == '[' || first == '{') return size_of_flow(yaml, node.offset);
  return size_of_block(yaml, node);
}

// The text with a split where the section begins.
std::string inserted(const std::string& yaml, const YamlNode& parallel, const std::string& split) {
  std::string text = yaml;
  if (yaml[parallel.offset] == '{') return text.insert(parallel.offset + 1, "split: " + split + ", ");
  const std::string indent(column_of(yaml, parallel.offset), ' ');
  return text.insert(parallel.offset, "split: " + split + "\n" + indent);
}

Status cannot_write(const std::string& split) {
  return invalid_argument(
      "parallel: expected a section in which its split can be replaced; write it there: split: {}", split);
}

}  // namespace

std::string to_text(const Split& split) {
  std::vector<std::string> stages;
  for (const auto& items : split) {
    std::vector<std::string> names;
    for (const Item& item : items) names.push_back(to_string(item));
    stages.push_back("[" + join(names) + "]");
  }
  return "[" + join(stages) + "]";
}

StatusOr<bool> split_is_auto(const std::string& yaml) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode::Entry* parallel = root.find("parallel");
  const YamlNode::Entry* split = parallel == nullptr ? nullptr : parallel->value.find("split");
  return split == nullptr || (split->value.is(YamlNode::Kind::Scalar) && split->value.text == "auto");
}

StatusOr<std::string> with_split(const std::string& yaml, const Split& split) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const std::string written = to_text(split);
  const YamlNode::Entry* parallel = root.find("parallel");
  if (parallel == nullptr || !parallel->value.is(YamlNode::Kind::Map) ||
      parallel->value.offset >= yaml.size())
    return cannot_write(written);
  std::string text;
  if (const YamlNode::Entry* old = parallel->value.find("split"); old != nullptr) {
    const std::optional<size_t> size = size_of(yaml, old->value);
    if (!size) return cannot_write(written);
    // In place of a list of lines it stands further right than its key.
    const bool is_block = old->value.is(YamlNode::Kind::List) && yaml[old->value.offset] == '-';
    text = yaml;
    text.replace(old->value.offset, *size, (is_block ? "  " : "") + written);
  } else {
    text = inserted(yaml, parallel->value, written);
  }
  const StatusOr<JobSpec> read = parse_job_spec(text);
  if (!read.ok() || read->parallel.split != split) return cannot_write(written);
  return text;
}

}  // namespace penstock::plan
