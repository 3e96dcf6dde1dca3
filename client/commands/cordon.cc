#include <set>
#include <string>
#include <vector>

#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

// A worker that is not there any more runs nothing.
std::set<std::string> jobs_on(const std::vector<v1::Worker>& devices) {
  std::set<std::string> jobs;
  for (const v1::Worker& device : devices) {
    if (!device.job().empty()) jobs.insert(device.job());
  }
  return jobs;
}

std::string drained_text(const std::string& worker, const std::set<std::string>& jobs) {
  if (jobs.empty()) return fmt::format("worker/{} drained\n", worker);
  std::string text = fmt::format(
      "worker/{} draining: it gets no new ranks, and those that it runs go on to the end of their attempt\n",
      worker);
  for (const std::string& job : jobs) {
    text += fmt::format(
        "to move job {} away, over its next checkpoint: penstock pause {}, then penstock resume {}\n", job,
        job, job);
  }
  return text;
}

}  // namespace

int drain(const WorkerOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<std::vector<v1::Worker>> devices = (*coordinator)->drain(options.name);
  if (!devices.ok()) return report_error(devices.status());
  print(drained_text(options.name, jobs_on(*devices)));
  return kExitSucceeded;
}

int uncordon(const WorkerOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<std::vector<v1::Worker>> devices = (*coordinator)->uncordon(options.name);
  if (!devices.ok()) return report_error(devices.status());
  print(fmt::format("worker/{} uncordoned\n", options.name));
  return kExitSucceeded;
}

}  // namespace penstock::client
