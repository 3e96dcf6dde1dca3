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

StatusOr<JobFile> file_to_go_on_with(Coordinator& coordinator, const ResumeOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const v1::Job job, coordinator.job(options.name));
  PENSTOCK_ASSIGN_OR_RETURN(plan::JobSpec running, plan::parse_job_spec(job.spec_yaml()));
  return read_job_file(options.file, {options.connection, options.costs, std::move(running)});
}

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
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  std::string yaml;
  if (!options.file.empty()) {
    StatusOr<JobFile> file = file_to_go_on_with(**coordinator, options);
    if (!file.ok()) return report_error(file.status());
    for (const std::string& words : file->planned) say("penstock: " + words);
    yaml = std::move(file->yaml);
  }
  const StatusOr<v1::JobState> state = resume_when_stopped(**coordinator, options.name, yaml);
  if (!state.ok() && state.status().code() == StatusCode::kInvalidArgument && !options.file.empty())
    return report_error(refused(options.file, state.status()));
  if (!state.ok()) return report_error(state.status());
  print(fmt::format("job/{} {}\n", options.name, name_of(*state)));
  return kExitSucceeded;
}

}  // namespace penstock::client
