#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"

namespace penstock::client {

int cancel(const JobOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<v1::JobState> state = (*coordinator)->cancel(options.name);
  if (!state.ok()) return report_error(state.status());
  if (has_ended(*state) && *state != v1::JOB_STATE_CANCELLED) {
    return report_error(failed_precondition("job {} has ended before: {}", options.name, name_of(*state)));
  }
  // Ranks that run stop first; the job is cancelled once they have.
  print(fmt::format("job/{} {}\n", options.name,
                    *state == v1::JOB_STATE_CANCELLED ? "cancelled" : "cancelling"));
  return kExitSucceeded;
}

}  // namespace penstock::client
