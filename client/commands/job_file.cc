#include "client/commands/job_file.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "base/text.h"
#include "client/commands/cost_profile.h"
#include "client/commands/job_schedule.h"
#include "client/commands/model_folder.h"
#include "client/commands/planning_time.h"
#include "client/commands/program_file.h"
#include "client/commands/restart_checkpoint.h"
#include "client/commands/terminal.h"
#include "plan/forecast/auto_plan.h"
#include "plan/interop/stage_costs.h"
#include "plan/render/human.h"
#include "plan/schedule/families.h"
#include "plan/spec/cost_source.h"
#include "plan/spec/limits.h"
#include "plan/spec/model_source.h"
#include "plan/spec/restart_source.h"
#include "plan/spec/same_training.h"
#include "plan/spec/schedule_source.h"

namespace penstock::client {
namespace {

// What config.json says of the model that the job starts from becomes part of the text; see
// plan/spec/model_source.h.
StatusOr<std::string> with_its_model(const std::string& text, const std::filesystem::path& directory) {
  const StatusOr<std::string> source = plan::model_source(text);
  if (!source.ok() || source->empty()) return text;  // what is no YAML is told by who reads it all
  const std::string folder = (directory / *source).lexically_normal().string();
  const StatusOr<ModelFolder> found = open_model_folder(folder);
  if (!found.ok()) return with_context(found.status(), "model.from");
  return plan::with_model_source(text, found->path, found->model);
}

// The checkpoint of `restart: {from: ...}`, found here, becomes part of the text in the same way; see
// plan/spec/restart_source.h.
StatusOr<std::string> with_its_checkpoint(const std::string& text, const std::filesystem::path& directory,
                                          const ConnectionOptions& connection, RestartCheckpoint& found) {
  const StatusOr<std::string> source = plan::restart_source(text);
  if (!source.ok() || source->empty()) return text;  // what is no YAML is told by who reads it all
  StatusOr<RestartCheckpoint> checkpoint = find_restart_checkpoint(*source, directory.string(), connection);
  if (!checkpoint.ok()) return with_context(checkpoint.status(), "restart.from");
  found = *std::move(checkpoint);
  return plan::with_restart_source(text, found.start);
}

std::vector<std::string> start_words(const RestartCheckpoint& found, const plan::JobSpec& spec) {
  if (found.start.path.empty()) return {};
  std::vector<std::string> words = {
      fmt::format("goes on from step {} of job {}: {}", found.start.step, found.job, found.start.path)};
  if (found.spec_yaml.empty()) return words;  // an imported one
  const StatusOr<plan::JobSpec> before = plan::parse_job_spec(found.spec_yaml);
  if (!before.ok()) {
    words.push_back("the file of that job cannot be compared with this one: " +
                    split_on(message(before.status()), '\n').front());
    return words;
  }
  for (const std::string& difference : plan::training_differences(*before, spec))
    words.push_back("otherwise than that job: " + difference);
  return words;
}

// The program of `schedule: file:PATH`, proved here first, becomes part of the text; see
// plan/spec/schedule_source.h.
StatusOr<std::string> with_its_schedule(const std::string& text, const std::filesystem::path& directory) {
  const StatusOr<std::string> source = plan::schedule_source(text);
  if (!source.ok() || source->empty()) return text;  // what is no YAML is told by who reads it all
  const std::string path = (directory / *source).lexically_normal().string();
  const StatusOr<ProgramFile> file = read_program_file(path);
  if (!file.ok()) return with_context(file.status(), "parallel.schedule");
  if (file->verdict.valid()) return plan::with_schedule_program(text, file->program);
  return invalid_argument("parallel.schedule: {}: {}", path, file->verdict.violations.front().to_string());
}

// The program of a searched schedule becomes part of the text in the same way.
StatusOr<std::string> with_its_search(const std::string& text, std::string& found) {
  PENSTOCK_ASSIGN_OR_RETURN(const plan::JobSpec spec, plan::parse_job_spec(text));
  if (!plan::is_searched_schedule(spec.parallel.schedule) || !spec.parallel.program.empty()) return text;
  PENSTOCK_ASSIGN_OR_RETURN(SearchedSchedule searched, search_schedule(spec));
  found = std::move(searched.found);
  return plan::with_schedule_program(text, searched.program);
}

// The costs of `device: {costs: FILE}` become part of the text; see plan/spec/cost_source.h.
StatusOr<std::string> with_its_costs(const std::string& text, const std::filesystem::path& directory) {
  const StatusOr<std::string> source = plan::cost_source(text);
  if (!source.ok() || source->empty()) return text;  // what is no YAML is told by who reads it all
  const std::string path = (directory / *source).lexically_normal().string();
  const StatusOr<std::string> costs = read_file(path, plan::kLargestJobFileBytes);
  if (!costs.ok()) return invalid_argument("device.costs: {}", message(costs.status()));
  const StatusOr<plan::CostNumbers> numbers = plan::cost_numbers_from_json(*costs, path);
  if (!numbers.ok()) return with_context(numbers.status(), "device.costs");
  return plan::with_costs(text, *numbers);
}

// What was planned is told, and stands in the text.
StatusOr<std::string> noted(StatusOr<plan::AutoPlan> plan, std::vector<std::string>& planned) {
  PENSTOCK_RETURN_IF_ERROR(plan.status());
  planned.insert(planned.end(), plan->notes.begin(), plan->notes.end());
  return std::move(plan->yaml);
}

// The program against the job that it came with: that it is of as many microbatches above all.
Status check_program(const plan::JobSpec& spec) {
  if (spec.parallel.program.empty()) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(const plan::ComputeProgram program, plan::compute_program(spec));
  const plan::Verdict verdict = plan::verify(program);
  if (verdict.valid()) return ok_status();
  return invalid_argument("{}: {} does not run {} of this job: {}", plan::place_of(spec, "parallel.schedule"),
                          spec.parallel.schedule, plan::counted(spec.microbatches(), "microbatch"),
                          verdict.violations.front().to_string());
}

struct ResolvedText {
  std::string yaml;
  RestartCheckpoint start;
};

// With what stands in the files and folders that the text names.
StatusOr<ResolvedText> resolved(const std::string& written, const std::filesystem::path& directory,
                                const ConnectionOptions& connection) {
  ResolvedText text;
  PENSTOCK_ASSIGN_OR_RETURN(const std::string with_model, with_its_model(written, directory));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string with_checkpoint,
                            with_its_checkpoint(with_model, directory, connection, text.start));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string with_schedule, with_its_schedule(with_checkpoint, directory));
  PENSTOCK_ASSIGN_OR_RETURN(text.yaml, with_its_costs(with_schedule, directory));
  return text;
}

StatusOr<std::filesystem::path> folder_of(const std::string& path) {
  std::error_code failure;
  const std::filesystem::path absolute = std::filesystem::absolute(path, failure);
  if (failure) return unavailable("its folder: {}", failure.message());
  return absolute.parent_path();
}

StatusOr<JobFile> checked(const std::string& written, const std::filesystem::path& directory,
                          const JobFileOptions& options, const plan::CostSources& costs) {
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedText text, resolved(written, directory, options.connection));
  JobFile file;
  if (options.running) {
    PENSTOCK_ASSIGN_OR_RETURN(text.yaml, noted(plan::keep_plan(text.yaml, *options.running), file.planned));
  }
  // As written first, so that a message names the paths that the user wrote.
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::string sized,
      noted(plan::plan_schedule_and_sizes(text.yaml, costs, until_from_now), file.planned));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string searched, with_its_search(sized, file.searched));
  PENSTOCK_ASSIGN_OR_RETURN(const std::string whole,
                            noted(plan::plan_split(searched, costs, until_from_now), file.planned));
  if (costs.profile && file.planned.empty()) {
    file.planned.push_back("--profile changes nothing: no field is auto, or no split beats equal counts by " +
                           costs.profile->source);
  }
  PENSTOCK_ASSIGN_OR_RETURN(file.yaml, plan::with_absolute_sources(whole, directory.string()));
  PENSTOCK_ASSIGN_OR_RETURN(file.spec, plan::parse_job_spec(file.yaml));
  PENSTOCK_RETURN_IF_ERROR(check_program(file.spec));
  file.start = start_words(text.start, file.spec);
  return file;
}

StatusOr<std::string> read_text(const std::string& path) {
  StatusOr<std::string> text = read_file(path, plan::kLargestJobFileBytes);
  if (!text.ok()) return invalid_argument("{}", message(text.status()));
  return text;
}

}  // namespace

StatusOr<JobFile> read_job_file(const std::string& path, const JobFileOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  PENSTOCK_ASSIGN_OR_RETURN(const plan::CostSources costs, cost_sources(options.costs, options.connection));
  PENSTOCK_ASSIGN_OR_RETURN(const std::filesystem::path directory, folder_of(path));
  StatusOr<JobFile> file = checked(text, directory, options, costs);
  if (!file.ok()) return refused(path, file.status());
  return file;
}

StatusOr<std::string> read_job_text(const std::string& path, const ConnectionOptions& connection) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_text(path));
  PENSTOCK_ASSIGN_OR_RETURN(const std::filesystem::path directory, folder_of(path));
  StatusOr<ResolvedText> found = resolved(text, directory, connection);
  if (!found.ok()) return refused(path, found.status());
  return std::move(found->yaml);
}

Status refused(const std::string& path, const Status& problems) {
  // They come a line each, and stand set in under the file that they are about.
  std::string text = path + " is refused:";
  for (const std::string& line : split_on(message(problems), '\n')) {
    if (!trim(line).empty()) text += "\n  " + line;
  }
  return Status(StatusCode::kInvalidArgument, text);
}

Status not_submitted(const std::string& path, const JobFile& file, const Status& end) {
  if (end.code() == StatusCode::kInvalidArgument) return refused(path, end);
  if (end.code() != StatusCode::kDeadlineExceeded) return end;
  return deadline_exceeded(
      "{}; the job may have been accepted all the same: look for {} in `penstock get jobs` before you submit it "
      "again",
      message(end), file.spec.name);
}

std::string shape_text(const JobFile& file) {
  using plan::counted;
  const plan::JobSpec& spec = file.spec;
  const plan::ParallelSpec& parallel = spec.parallel;
  const bool several = parallel.pipelines() > 1;
  const std::string degrees =
      fmt::format(" (pipeline {} x expert {} x data {})", parallel.pipeline, parallel.expert, parallel.data);
  std::string text = fmt::format(
      "  schedule {}: {}{}, {}, {}{} of {}\n", parallel.schedule, counted(spec.ranks(), "rank"),
      several ? degrees : "", counted(spec.stages(), "stage"), counted(spec.microbatches(), "microbatch"),
      several ? " a pipeline" : "", counted(spec.tokens_per_microbatch(), "token"));
  for (const std::string& words : file.start) text += fmt::format("  {}\n", words);
  if (!file.searched.empty()) text += fmt::format("  searched {}\n", file.searched);
  for (const std::string& words : file.planned) text += fmt::format("  {}\n", words);
  for (size_t stage = 0; stage < spec.parallel.split.size(); ++stage) {
    std::vector<std::string> items;
    for (const plan::Item& item : spec.parallel.split[stage]) items.push_back(plan::to_string(item));
    text += fmt::format("  stage {}: {}\n", stage, join(items, " "));
  }
  return text;
}

}  // namespace penstock::client
