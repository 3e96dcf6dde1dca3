#include "plan/spec/internal/value_in_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/spec/internal/scalar_text.h"
#include "plan/spec/internal/yaml_tree.h"

namespace penstock::plan {
namespace {

// Bytes from a '[' or '{' to what closes it. What is replaced holds no quotes; comments are jumped over.
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

// Whether the line's first word, at `word`, is a comment or none.
bool says_nothing(const std::string& yaml, size_t word) {
  return word == std::string::npos || yaml[word] == '\n' || yaml[word] == '\r' || yaml[word] == '#';
}

// Bytes of a block that begins at `offset`: its line and those behind it that stand as far right, with the empty lines and the
// comments between them, which may stand anywhere. A list may stand below its key, as far left as the keys beside it.
size_t size_of_block(const std::string& yaml, const YamlNode& node) {
  const size_t column = column_of(yaml, node.offset);
  size_t end = std::min(yaml.find('\n', node.offset), yaml.size());
  for (size_t line_end = end; line_end < yaml.size();) {
    const size_t begin = line_end + 1;
    const size_t word = yaml.find_first_not_of(' ', begin);
    line_end = std::min(yaml.find('\n', begin), yaml.size());
    if (says_nothing(yaml, word)) continue;
    if (word - begin < column) break;
    const bool is_next_key = node.is(YamlNode::Kind::List) && word - begin == column && yaml[word] != '-';
    if (is_next_key) break;
    end = line_end;
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

// The text with a key where the section begins.
std::string inserted(const std::string& yaml, const YamlNode& section, const std::string& entry) {
  std::string text = yaml;
  if (yaml[section.offset] == '{') return text.insert(section.offset + 1, entry + ", ");
  const std::string indent(column_of(yaml, section.offset), ' ');
  return text.insert(section.offset, entry + "\n" + indent);
}

}  // namespace

StatusOr<std::optional<std::string>> with_value(const std::string& yaml, const KeyInSection& place,
                                                const std::string& value) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode::Entry* section = root.find(place.section);
  if (section == nullptr || !section->value.is(YamlNode::Kind::Map) || section->value.offset >= yaml.size())
    return std::optional<std::string>();
  const YamlNode::Entry* old = section->value.find(place.key);
  if (old == nullptr)
    return std::optional(inserted(yaml, section->value, std::string(place.key) + ": " + value));
  const std::optional<size_t> size = size_of(yaml, old->value);
  if (!size) return std::optional<std::string>();
  // In place of a list of lines it stands further right than its key.
  const bool is_block = old->value.is(YamlNode::Kind::List) && yaml[old->value.offset] == '-';
  std::string text = yaml;
  text.replace(old->value.offset, *size, (is_block ? "  " : "") + value);
  return std::optional(std::move(text));
}

StatusOr<std::string> with_first_key(const std::string& yaml, const char* key, const std::string& value) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  if (root.is(YamlNode::Kind::Map) && root.offset < yaml.size())
    return inserted(yaml, root, fmt::format("{}: {}", key, value));
  return invalid_argument("job file: expected a section of keys and values, found {}", root.shown());
}

}  // namespace penstock::plan
