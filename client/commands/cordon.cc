#include <set>

#include "base/text.h"
#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

// "job tiny, job other"; a worker that is not there any more runs nothing.
std::string running_on(const std::vector<v1::Worker>& devices) {
  std::set<std::string> jobs;
  for (const v1::Worker& device : devices) {
    if (!device.job().empty()) jobs.insert("job " + device.job());
  }
  return join(std::vector<std::string>(jobs.begin(), jobs.end()));
}

}  // namespace

int drain(const WorkerOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<std::vector<v1::Worker>> devices = (*coordinator)->drain(options.name);
  if (!devices.ok()) return report_error(devices.status());
  const std::string jobs = running_on(*devices);
  print(jobs.empty() ? fmt::format("worker/{} drained\n", options.name)
                     : fmt::format("worker/{} draining: its ranks of {} go on to the end of their attempt\n",
                                   options.name, jobs));
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
