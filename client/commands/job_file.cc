#include "client/commands/job_file.h"

#include <filesystem>
#include <utility>

#include "base/text.h"
#include "client/commands/terminal.h"
#include "plan/render/human.h"
#include "plan/spec/limits.h"

namespace penstock::client {
namespace {

StatusOr<JobFile> checked(const std::string& text, const std::string& path) {
  // As written first, so that a message names the paths that the user wrote.
  PENSTOCK_RETURN_IF_ERROR(plan::parse_job_spec(text).status());
  std::error_code failure;
  const std::filesystem::path absolute = std::filesystem::absolute(path, failure);
  if (failure) return unavailable("its folder: {}", failure.message());
  JobFile file;
  PENSTOCK_ASSIGN_OR_RETURN(file.yaml, plan::with_absolute_sources(text, absolute.parent_path().string()));
  PENSTOCK_ASSIGN_OR_RETURN(file.spec, plan::parse_job_spec(file.yaml));
  return file;
}

}  // namespace

StatusOr<JobFile> read_job_file(const std::string& path) {
  const StatusOr<std::string> text = read_file(path, plan::kLargestJobFileBytes);
  if (!text.ok()) return invalid_argument("{}", message(text.status()));
  StatusOr<JobFile> file = checked(*text, path);
  if (!file.ok()) return refused(path, file.status());
  return file;
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

std::string shape_text(const plan::JobSpec& spec) {
  using plan::counted;
  std::string text =
      fmt::format("  schedule {}: {}, {}, {} of {}\n", spec.parallel.schedule, counted(spec.ranks(), "rank"),
                  counted(spec.stages(), "stage"), counted(spec.microbatches(), "microbatch"),
                  counted(spec.tokens_per_microbatch(), "token"));
  for (size_t stage = 0; stage < spec.parallel.split.size(); ++stage) {
    std::vector<std::string> items;
    for (const plan::Item& item : spec.parallel.split[stage]) items.push_back(plan::to_string(item));
    text += fmt::format("  stage {}: {}\n", stage, join(items, " "));
  }
  return text;
}

}  // namespace penstock::client
