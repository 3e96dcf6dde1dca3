#include <thread>

#include "base/clock.h"
#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/job_file.h"
#include "client/commands/resume_job.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

constexpr Duration kRetryEvery = 500ms;
constexpr int kRetries = 120;  // longer than ranks that nobody hears of may live

}  // namespace

// A job that was paused a moment ago may still drain, or its ranks be stopping.
StatusOr<v1::JobState> resume_when_stopped(Coordinator& coordinator, const std::string& name,
                                           const std::string& yaml) {
  StatusOr<v1::JobState> state = coordinator.resume(name, yaml);
  for (int retry = 0; retry < kRetries && state.status().code() == StatusCode::kUnavailable; ++retry) {
    if (retry == 0) say("penstock: " + message(state.status()) + ", for up to a minute");
    std::this_thread::sleep_for(kRetryEvery);
    state = coordinator.resume(name, yaml);
  }
  return state;
}

int resume(const ResumeOptions& options) {
  std::string yaml;
  if (!options.file.empty()) {
    StatusOr<JobFile> file = read_job_file(options.file, {options.connection});
    if (!file.ok()) return report_error(file.status());
    yaml = std::move(file->yaml);
  }
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<v1::JobState> state = resume_when_stopped(**coordinator, options.name, yaml);
  if (!state.ok() && state.status().code() == StatusCode::kInvalidArgument && !options.file.empty())
    return report_error(refused(options.file, state.status()));
  if (!state.ok()) return report_error(state.status());
  print(fmt::format("job/{} {}\n", options.name, name_of(*state)));
  return kExitSucceeded;
}

}  // namespace penstock::client
