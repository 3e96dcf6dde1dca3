#include <ctime>

#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "plan/render/human.h"

namespace penstock::client {
namespace {

// "14:03:22.123 rank 1 worker-2 | text", in local time. A rank's output must not steer a terminal, now or when a
// file of it is read, nor look like a line of another rank.
std::string shown(const v1::LogLine& line) {
  const std::time_t seconds = line.unix_ms() / 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}.{:03} rank {} {} | {}\n", local.tm_hour, local.tm_min, local.tm_sec,
                     line.unix_ms() % 1000, line.rank(), plan::printable(line.worker()),
                     plan::printable(line.text()));
}

Status check_rank(Coordinator& coordinator, const LogsOptions& options) {
  if (options.rank < 0) return ok_status();
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Job job, coordinator.job(options.name));
  if (options.rank < job.ranks()) return ok_status();
  return invalid_argument("--rank {}: job {} has {}, counted from 0", options.rank, options.name,
                          plan::counted(job.ranks(), "rank"));
}

}  // namespace

int logs(const LogsOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  if (const Status known = check_rank(**coordinator, options); !known.ok()) return report_error(known);
  const Status status =
      (*coordinator)
          ->logs(
              {.job = options.name, .rank = options.rank, .follow = options.follow},
              [&](const v1::LogLine& line) {
                if (!print(shown(line))) (*coordinator)->stop();
              },
              [](const Status& away) { say("penstock: " + message(away) + "; trying again"); });
  if (!output_written()) return kExitFailed;
  return status.ok() ? kExitSucceeded : report_error(status);
}

}  // namespace penstock::client
