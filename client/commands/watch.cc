#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"

namespace penstock::client {

int watch(const JobOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<v1::Job> job = follow(**coordinator, options.name, stdout);
  if (!output_written()) return kExitFailed;
  return job.ok() ? exit_code_of(*job) : report_error(job.status());
}

}  // namespace penstock::client
