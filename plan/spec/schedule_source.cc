#include "plan/spec/schedule_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/schedule/families.h"
#include "plan/spec/internal/scalar_text.h"
#include "plan/spec/internal/yaml_tree.h"
#include "plan/spec/limits.h"

namespace penstock::plan {
namespace {

constexpr std::string_view kFilePrefix = "file:";

bool is_file(const std::string& schedule) {
  return schedule.starts_with(kFilePrefix);
}

// The scalar that names a schedule whose program does not come of its name: file:PATH, or a searched one. Null where
// there is none. It points into `root`.
const YamlNode* find_name(const YamlNode& root) {
  const YamlNode::Entry* parallel = root.find("parallel");
  const YamlNode::Entry* schedule = parallel == nullptr ? nullptr : parallel->value.find("schedule");
  if (schedule == nullptr || !schedule->value.is(YamlNode::Kind::Scalar)) return nullptr;
  const std::string& name = schedule->value.text;
  return is_file(name) || is_searched_schedule(name) ? &schedule->value : nullptr;
}

std::string rank_text(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) text += (text.empty() ? "" : " ") + to_string(action);
  return text;
}

// What stands in place of the name: a map that has the program beside it.
std::string with_program(const std::string& name, const ComputeProgram& program) {
  std::vector<std::string> ranks;
  for (const auto& actions : program.actions) ranks.push_back(double_quoted(rank_text(actions)));
  const bool file = is_file(name);
  return fmt::format("{{{}: {}, program: [{}]}}", file ? "file" : "name",
                     double_quoted(file ? name.substr(kFilePrefix.size()) : name), join(ranks));
}

std::vector<std::vector<RankIndex>> placement_of(const JobSpec& job) {
  std::vector<std::vector<RankIndex>> placement(static_cast<size_t>(job.stages()));
  for (size_t rank = 0; rank < job.parallel.program.size(); ++rank) {
    const auto place = [&](const Work& work) {
      auto& ranks = placement[static_cast<size_t>(work.stage.value)];
      if (ranks.empty()) ranks.emplace_back(static_cast<int64_t>(rank));
    };
    for (const Action& action : job.parallel.program[rank]) {
      place(action.work);
      if (action.overlapped) place(*action.overlapped);
    }
  }
  return placement;
}

}  // namespace

StatusOr<std::string> schedule_source(const std::string& yaml) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode* name = find_name(root);
  return name == nullptr || !is_file(name->text) ? "" : name->text.substr(kFilePrefix.size());
}

StatusOr<std::string> with_schedule_program(const std::string& yaml, const ComputeProgram& program) {
  Problems problems;
  const YamlNode root = parse_yaml(yaml, problems);
  PENSTOCK_RETURN_IF_ERROR(problems.status());
  const YamlNode* name = find_name(root);
  if (name == nullptr) {
    return invalid_argument("parallel.schedule: expected file:PATH or a searched schedule, found neither");
  }
  if (program.updates != 1) {
    return invalid_argument(
        "line {}: parallel.schedule: expected a program of one optimizer step, found one of {}", name->line,
        program.updates);
  }
  if (program.has_replicas()) {
    return invalid_argument(
        "line {}: parallel.schedule: expected a program with every stage on one rank, found one with stages on two; "
        "a job takes dualpipe and chimera by name",
        name->line);
  }
  const std::optional<size_t> size = size_in_text(yaml, *name);
  const bool one_line = name->text.find_first_of("\r\n\t") == std::string::npos;
  if (!size || !one_line) {
    return invalid_argument("line {}: parallel.schedule: expected a path on one line, found {}", name->line,
                            name->shown());
  }
  std::string text = yaml;
  text.replace(name->offset, *size, with_program(name->text, program));
  if (text.size() <= kLargestJobFileBytes) return text;
  return invalid_argument(
      "line {}: parallel.schedule: the program makes the job file {} bytes long, expected at most {}",
      name->line, text.size(), kLargestJobFileBytes);
}

StatusOr<ComputeProgram> compute_program(const JobSpec& job) {
  if (job.parallel.program.empty() && is_searched_schedule(job.parallel.schedule)) {
    return invalid_argument(
        "{}: expected the program of {} beside its name, as `penstock submit` searches for it and writes it, found "
        "none",
        place_of(job, "parallel.schedule"), job.parallel.schedule);
  }
  if (job.parallel.program.empty()) {
    return generate({.name = job.parallel.schedule,
                     .ranks = job.parallel.pipeline,
                     .microbatches = static_cast<int>(job.microbatches()),
                     .stages_per_rank = job.parallel.stages_per_rank,
                     .updates = std::max(1, job.parallel.flush_every),
                     .extra_warm_up_forwards = job.parallel.schedule_options.extra_warm_up});
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
