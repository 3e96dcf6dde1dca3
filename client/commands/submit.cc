#include <optional>

#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/job_file.h"
#include "client/commands/terminal.h"
#include "client/local_service/interrupt.h"
#include "client/present/job_words.h"
#include "plan/interop/planned_job.h"

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

// Of the rank that holds most: what it is refused for, or would hold.
std::string memory_text(const plan::JobSpec& job) {
  const auto memory = plan::memory_of_job(job);
  return memory.ok() ? "  most memory: " + plan::largest_memory_text(*memory) + "\n" : "";
}

// Asks the coordinator too, which knows its fleet; the file is checked even when it cannot be reached.
int dry_run(const SubmitOptions& options, const JobFile& file) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const auto response = (*coordinator)->submit({.spec_yaml = file.yaml, .dry_run = true});
  if (!response.ok() && response.status().code() != StatusCode::kUnavailable) {
    const bool found_wrong = response.status().code() == StatusCode::kInvalidArgument;
    return report_error(found_wrong ? refused(options.file, response.status()) : response.status());
  }
  if (!response.ok()) say("penstock: checked here only: " + message(response.status()));
  print(fmt::format("job/{} checked (dry run)\n", file.spec.name) + shape_text(file) +
        memory_text(file.spec) + notes_text(file.spec.notes));
  return kExitSucceeded;
}

int follow_to_end(Coordinator& coordinator, const std::string& name, const std::string& flag,
                  const InterruptWatcher& interrupts) {
  const StatusOr<v1::Job> job = follow(coordinator, name, stderr);
  if (job.ok()) return exit_code_of(*job);
  if (interrupts.count() == 0) return report_error(job.status());
  say(fmt::format(
      "penstock: interrupted; job {0} goes on. Follow it again with `penstock watch {0}{1}`, stop it "
      "with `penstock cancel {0}{1}`",
      name, flag));
  return kExitInterrupted;
}

int submit_and_follow(const SubmitOptions& options, const JobFile& file, Coordinator& coordinator,
                      const InterruptWatcher* interrupts) {
  const StatusOr<v1::SubmitResponse> response = coordinator.submit({.spec_yaml = file.yaml});
  if (!response.ok()) return report_error(not_submitted(options.file, file, response.status()));

  const std::string& name = response->name();
  const std::string& asked = options.connection.coordinator;
  const std::string flag = asked.empty() ? "" : " --coordinator " + asked;
  print(fmt::format("job/{} submitted{}\n", name, renamed_text(name, file.spec.name)) + shape_text(file) +
        notes_text({response->notes().begin(), response->notes().end()}) + useful_commands(name, flag));
  return interrupts == nullptr ? kExitSucceeded : follow_to_end(coordinator, name, flag, *interrupts);
}

}  // namespace

int submit(const SubmitOptions& options) {
  const StatusOr<JobFile> file = read_job_file(options.file, {options.connection, options.costs});
  if (!file.ok()) return report_error(file.status());
  if (options.dry_run) return dry_run(options, *file);

  // Before gRPC starts its threads. A client that does not follow ends at Ctrl-C like any program.
  std::optional<InterruptWatcher> interrupts;
  if (options.follow) interrupts.emplace();
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  if (!interrupts) return submit_and_follow(options, *file, **coordinator, nullptr);

  interrupts->when_interrupted([&] { (*coordinator)->stop(); });
  const int result = submit_and_follow(options, *file, **coordinator, &*interrupts);
  interrupts->when_interrupted(nullptr);
  return result;
}

}  // namespace penstock::client
