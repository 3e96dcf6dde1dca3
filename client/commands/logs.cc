#include <ctime>

#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

// A worker's output must not steer the terminal; a file gets it as it is.
std::string safe(const std::string& text) {
  return is_terminal(stdout) ? plan::printable(text) : text;
}

// "14:03:22.123 rank 1 worker-2 | text", in local time.
std::string shown(const v1::LogLine& line) {
  const std::time_t seconds = line.unix_ms() / 1000;
  std::tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}.{:03} rank {} {} | {}\n", local.tm_hour, local.tm_min, local.tm_sec,
                     line.unix_ms() % 1000, line.rank(), line.worker(), safe(line.text()));
}

}  // namespace

int logs(const LogsOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const Status status =
      (*coordinator)
          ->logs(
              {.job = options.name, .rank = options.rank, .follow = options.follow},
              [](const v1::LogLine& line) { print(shown(line)); },
              [](const Status& away) { say("penstock: " + message(away) + "; trying again"); });
  return status.ok() ? kExitSucceeded : report_error(status);
}

}  // namespace penstock::client
