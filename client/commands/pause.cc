#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"

namespace penstock::client {

int pause(const JobOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<v1::JobState> state = (*coordinator)->pause(options.name);
  if (!state.ok()) return report_error(state.status());
  // A job that runs goes on to its next checkpoint first.
  print(fmt::format("job/{} {}\n", options.name, name_of(*state)));
  return kExitSucceeded;
}

}  // namespace penstock::client
