#include "plan/spec/restart_source.h"

#include <fmt/format.h>

#include "plan/spec/internal/scalar_text.h"
#include "plan/spec/internal/yaml_tree.h"

namespace penstock::plan {
namespace {

// Null where there is none. It points into `root`.
const YamlNode* find_source(const YamlNode& root) {
  const YamlNode::Entry* restart = root.find("restart");
  const YamlNode::Entry* from = restart == nullptr ? nullptr : restart->value.find("from");
  return from != nullptr && from->value.is(YamlNode::Kind::Scalar) ? &from->value : nullptr;
}

}  // namespace

StatusOr<std::string> restart_source(const std::string& yaml) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode* source = find_source(root);
  return source == nullptr ? "" : source->text;
}

StatusOr<std::string> with_restart_source(const std::string& yaml, const StartSpec& start) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode* source = find_source(root);
  if (source == nullptr)
    return invalid_argument("restart.from: expected a folder or a job's name, found none");
  const std::optional<size_t> size = size_in_text(yaml, *source);
  if (!size || start.path.find_first_of("\r\n\t") != std::string::npos) {
    return invalid_argument("line {}: restart.from: expected a path on one line, found {}", source->line,
                            source->shown());
  }
  std::string text = yaml;
  text.replace(source->offset, *size,
               fmt::format("{{path: {}, step: {}, samples: {}}}", double_quoted(start.path), start.step,
                           start.samples));
  return text;
}

}  // namespace penstock::plan
