#include "plan/spec/split_source.h"

#include <optional>

#include "base/text.h"
#include "plan/spec/internal/value_in_text.h"

namespace penstock::plan {
namespace {

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

std::string items_text(const std::vector<Item>& items) {
  std::vector<std::string> words;
  for (size_t i = 0; i < items.size();) {
    size_t end = i + 1;
    while (end < items.size() && items[i].kind == ItemKind::Block && items[end].kind == ItemKind::Block)
      ++end;
    words.push_back(end - i == 1 ? to_string(items[i])
                                 : fmt::format("{}-{}", to_string(items[i]), to_string(items[end - 1])));
    i = end;
  }
  return join(words, " ");
}

StatusOr<std::string> with_split(const std::string& yaml, const Split& split) {
  const std::string written = to_text(split);
  PENSTOCK_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                            with_value(yaml, {"parallel", "split"}, written));
  if (!text) return cannot_write(written);
  const StatusOr<JobSpec> read = parse_job_spec(*text);
  if (!read.ok() || read->parallel.split != split) return cannot_write(written);
  return *text;
}

}  // namespace penstock::plan
