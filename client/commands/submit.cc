#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/job_file.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

std::string notes_text(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += "  note: " + note + "\n";
  return text;
}

std::string renamed_text(const std::string& name, const std::string& asked) {
  return name == asked ? "" : fmt::format(" ({} is taken)", asked);
}

// Asks the coordinator too, which knows its fleet; the file is checked even when it cannot be reached.
int dry_run(const SubmitOptions& options, const JobFile& file) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const auto response = (*coordinator)->submit({.spec_yaml = file.yaml, .dry_run = true});
  if (!response.ok() && response.status().code() != StatusCode::kUnavailable)
    return report_error(response.status());
  if (!response.ok()) say("penstock: checked here only: " + message(response.status()));
  print(fmt::format("job/{} checked (dry run)\n", file.spec.name) + shape_text(file.spec) +
        notes_text(file.spec.notes));
  return kExitSucceeded;
}

}  // namespace

int submit(const SubmitOptions& options) {
  const StatusOr<JobFile> file = read_job_file(options.file);
  if (!file.ok()) return report_error(file.status());
  if (options.dry_run) return dry_run(options, *file);

  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<v1::SubmitResponse> response = (*coordinator)->submit({.spec_yaml = file->yaml});
  if (!response.ok()) return report_error(response.status());

  const std::string& name = response->name();
  const std::string& asked = options.connection.coordinator;
  print(fmt::format("job/{} submitted{}\n", name, renamed_text(name, file->spec.name)) +
        shape_text(file->spec) + notes_text({response->notes().begin(), response->notes().end()}) +
        useful_commands(name, asked.empty() ? "" : " --coordinator " + asked));
  if (!options.follow) return kExitSucceeded;

  const StatusOr<v1::Job> job = follow(**coordinator, name, stderr);
  return job.ok() ? exit_code_of(*job) : report_error(job.status());
}

}  // namespace penstock::client
