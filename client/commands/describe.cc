#include <algorithm>
#include <iterator>

#include "base/clock.h"
#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_tables.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

StatusOr<std::string> description(Coordinator& coordinator, const DescribeOptions& options) {
  const int64_t now = SystemClock().unix_milliseconds();
  if (options.kind == "job") {
    PENSTOCK_ASSIGN_OR_RETURN(const v1::Job job, coordinator.job(options.name));
    return describe_job(job, now);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, coordinator.workers());
  std::vector<v1::Worker> devices;
  std::copy_if(workers.begin(), workers.end(), std::back_inserter(devices),
               [&](const v1::Worker& device) { return device.name() == options.name; });
  if (devices.empty()) {
    return not_found("worker {}: the coordinator knows no such worker; see `penstock get workers`",
                     options.name);
  }
  return describe_worker(devices, now);
}

}  // namespace

int describe(const DescribeOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<std::string> text = description(**coordinator, options);
  if (!text.ok()) return report_error(text.status());
  print(*text);
  return kExitSucceeded;
}

}  // namespace penstock::client
