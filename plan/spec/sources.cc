#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "plan/spec/internal/scalar_text.h"
#include "plan/spec/internal/yaml_tree.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {
namespace {

// A piece of the text and what stands there instead.
struct Replacement {
  size_t offset = 0;
  size_t size = 0;
  std::string text;
};

// What a job file names by a path.
struct Field {
  const char* section;
  const char* key;
};
constexpr Field kFields[] = {{"data", "source"},
                             {"validation", "source"},
                             {"model", "from"},
                             {"restart", "from"},
                             {"checkpoint", "directory"}};

Status collect(const std::string& yaml, const YamlNode& path, const std::string& field,
               const std::string& directory, std::vector<Replacement>& replacements) {
  if (!path.is(YamlNode::Kind::Scalar) || path.text.empty() || path.text.front() == '/') return ok_status();
  const std::optional<size_t> size = size_in_text(yaml, path);
  const bool one_line = path.text.find_first_of("\r\n\t") == std::string::npos;
  if (!size || !one_line) {
    return invalid_argument("line {}: {}: expected a path on one line, found {}", path.line, field,
                            path.shown());
  }
  const std::filesystem::path absolute = std::filesystem::path(directory) / path.text;
  replacements.push_back({path.offset, *size, double_quoted(absolute.lexically_normal().string())});
  return ok_status();
}

// A path, {path: ...}, or a list of either.
Status collect_all(const std::string& yaml, const YamlNode& value, const std::string& field,
                   const std::string& directory, std::vector<Replacement>& replacements) {
  for (const YamlNode& item : value.items) {
    PENSTOCK_RETURN_IF_ERROR(collect_all(yaml, item, field, directory, replacements));
  }
  const YamlNode::Entry* path = value.find("path");
  return collect(yaml, path == nullptr ? value : path->value, field, directory, replacements);
}

}  // namespace

StatusOr<std::string> with_absolute_sources(const std::string& yaml, const std::string& directory) {
  if (directory.empty() || directory.front() != '/') {
    return invalid_argument("directory of the job file: expected an absolute path, found \"{}\"", directory);
  }
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  std::vector<Replacement> replacements;
  for (const Field& field : kFields) {
    const YamlNode::Entry* section = root.find(field.section);
    const YamlNode::Entry* named = section == nullptr ? nullptr : section->value.find(field.key);
    if (named == nullptr) continue;
    const std::string name = fmt::format("{}.{}", field.section, field.key);
    PENSTOCK_RETURN_IF_ERROR(collect_all(yaml, named->value, name, directory, replacements));
  }
  // From the back, so that earlier offsets stay true.
  std::sort(replacements.begin(), replacements.end(),
            [](const Replacement& a, const Replacement& b) { return a.offset > b.offset; });
  std::string rewritten = yaml;
  for (const Replacement& replacement : replacements) {
    rewritten.replace(replacement.offset, replacement.size, replacement.text);
  }
  return rewritten;
}

}  // namespace penstock::plan
