#include "client/commands/commands.h"
#include "client/commands/schedule_output.h"
#include "client/commands/schedule_request.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "plan/generation/generate.h"

namespace penstock::client {

int schedule(const ScheduleOptions& options) {
  const StatusOr<plan::ScheduleReport> report = schedule_report(options);
  if (!report.ok()) return report_error(report.status());
  const StatusOr<std::string> output = schedule_output(*report, options.output, columns_of(stdout));
  if (!output.ok()) return report_error(output.status());
  if (!report->timeline_note.empty()) {
    say("penstock: the earliest timeline is shown: " + report->timeline_note);
  }
  print(*output);
  return kExitSucceeded;
}

std::vector<std::string> known_schedules() {
  return plan::all_schedule_names();
}

}  // namespace penstock::client
