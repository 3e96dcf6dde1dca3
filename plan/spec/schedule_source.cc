#include "plan/spec/schedule_source.h"

#include <fmt/format.h>

#include "base/text.h"
#include "plan/schedule/families.h"
#include "plan/spec/internal/scalar_text.h"
#include "plan/spec/internal/yaml_tree.h"
#include "plan/spec/limits.h"

namespace penstock::plan {
namespace {

constexpr std::string_view kFilePrefix = "file:";

// The scalar file:PATH; null where there is none. It points into `root`.
const YamlNode* find_file(const YamlNode& root) {
  const YamlNode::Entry* parallel = root.find("parallel");
  const YamlNode::Entry* schedule = parallel == nullptr ? nullptr : parallel->value.find("schedule");
  if (schedule == nullptr || !schedule->value.is(YamlNode::Kind::Scalar)) return nullptr;
  return schedule->value.text.starts_with(kFilePrefix) ? &schedule->value : nullptr;
}

std::string rank_text(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) text += (text.empty() ? "" : " ") + to_string(action);
  return text;
}

std::vector<std::vector<RankIndex>> placement_of(const JobSpec& job) {
  std::vector<std::vector<RankIndex>> placement(static_cast<size_t>(job.stages()));
  for (size_t rank = 0; rank < job.parallel.program.size(); ++rank) {
    for (const Action& action : job.parallel.program[rank]) {
      auto& ranks = placement[static_cast<size_t>(action.work.stage.value)];
      if (ranks.empty()) ranks.emplace_back(static_cast<int64_t>(rank));
    }
  }
  return placement;
}

}  // namespace

StatusOr<std::string> schedule_source(const std::string& yaml) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode* file = find_file(root);
  return file == nullptr ? "" : file->text.substr(kFilePrefix.size());
}

StatusOr<std::string> with_schedule_program(const std::string& yaml, const ComputeProgram& program) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode* file = find_file(root);
  if (file == nullptr) return invalid_argument("parallel.schedule: expected file:PATH, found none");
  const std::optional<size_t> size = size_in_text(yaml, *file);
  const bool one_line = file->text.find_first_of("\r\n\t") == std::string::npos;
  if (!size || !one_line) {
    return invalid_argument("line {}: parallel.schedule: expected a path on one line, found {}", file->line,
                            file->shown());
  }
  std::vector<std::string> ranks;
  for (const auto& actions : program.actions) ranks.push_back(double_quoted(rank_text(actions)));
  std::string text = yaml;
  text.replace(file->offset, *size,
               fmt::format("{{file: {}, program: [{}]}}",
                           double_quoted(file->text.substr(kFilePrefix.size())), join(ranks)));
  if (text.size() <= kLargestJobFileBytes) return text;
  return invalid_argument(
      "line {}: parallel.schedule: the program makes the job file {} bytes long, expected at most {}",
      file->line, text.size(), kLargestJobFileBytes);
}

StatusOr<ComputeProgram> compute_program(const JobSpec& job) {
  if (job.parallel.program.empty()) {
    return generate({.name = job.parallel.schedule,
                     .ranks = job.parallel.pipeline,
                     .microbatches = static_cast<int>(job.microbatches()),
                     .stages_per_rank = job.parallel.stages_per_rank});
  }
  ComputeProgram program;
  program.schedule = job.parallel.schedule;
  program.ranks = job.parallel.pipeline;
  program.microbatches = static_cast<int>(job.microbatches());
  program.stages_per_rank = job.parallel.stages_per_rank;
  program.placement = placement_of(job);
  program.actions = job.parallel.program;
  return program;
}

}  // namespace penstock::plan
