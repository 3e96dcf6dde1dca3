#include "client/commands/job_file.h"

#include <filesystem>
#include <utility>

#include "base/text.h"
#include "client/commands/terminal.h"

namespace penstock::client {
namespace {

constexpr size_t kJobFileBytesMax = size_t{1} << 20;

// Problems come a line each; they stand set in under the file that they are about.
Status under_path(const Status& status, const std::string& path) {
  std::string text = path + " is refused:";
  for (const std::string& line : split_on(message(status), '\n')) {
    if (!trim(line).empty()) text += "\n  " + line;
  }
  return Status(status.code(), text);
}

}  // namespace

StatusOr<JobFile> read_job_file(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(path, kJobFileBytesMax));
  // Checked as written first, so that a message names the paths that the user wrote.
  if (const StatusOr<plan::JobSpec> written = plan::parse_job_spec(text); !written.ok()) {
    return under_path(written.status(), path);
  }
  std::error_code failure;
  const std::filesystem::path absolute = std::filesystem::absolute(path, failure);
  if (failure) return unavailable("{}: {}", path, failure.message());
  JobFile file;
  PENSTOCK_ASSIGN_OR_RETURN(file.yaml, plan::with_absolute_sources(text, absolute.parent_path().string()));
  PENSTOCK_ASSIGN_OR_RETURN(file.spec, plan::parse_job_spec(file.yaml));
  return file;
}

std::string shape_text(const plan::JobSpec& spec) {
  std::string text = fmt::format("  schedule {}: {} ranks, {} stages, {} microbatches of {} tokens\n",
                                 spec.parallel.schedule, spec.ranks(), spec.stages(), spec.microbatches(),
                                 spec.tokens_per_microbatch());
  for (size_t stage = 0; stage < spec.parallel.split.size(); ++stage) {
    std::vector<std::string> items;
    for (const plan::Item& item : spec.parallel.split[stage]) items.push_back(plan::to_string(item));
    text += fmt::format("  stage {}: {}\n", stage, join(items, " "));
  }
  return text;
}

}  // namespace penstock::client
