#include <utility>

#include "client/commands/commands.h"
#include "client/commands/program_file.h"
#include "client/commands/schedule_text.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "plan/interop/schedule_json.h"
#include "plan/interop/schedule_report.h"
#include "plan/interop/stage_costs.h"
#include "plan/schedule/families.h"
#include "plan/verification/verify.h"

namespace penstock::client {
namespace {

constexpr std::string_view kFilePrefix = "file:";

StatusOr<plan::ComputeProgram> generated_program(const ScheduleOptions& options) {
  if (!options.pipeline)
    return invalid_argument("-p/--pipeline: missing; {} needs a number of ranks", options.name);
  if (!options.microbatches)
    return invalid_argument("-m/--microbatches: missing; {} needs a number", options.name);
  return plan::generate({.name = options.name,
                         .ranks = *options.pipeline,
                         .microbatches = *options.microbatches,
                         .stages_per_rank = options.stages_per_rank});
}

// A program from a file is verified like any other before it is played.
StatusOr<plan::ComputeProgram> program_of(const ScheduleOptions& options) {
  if (!options.name.starts_with(kFilePrefix)) return generated_program(options);
  const std::string path = options.name.substr(kFilePrefix.size());
  PENSTOCK_ASSIGN_OR_RETURN(plan::ComputeProgram program, read_program_file(path));
  const plan::Verdict verdict = plan::verify(program);
  if (!verdict.valid()) return invalid_argument("{}: {}", path, verdict.violations.front().to_string());
  return program;
}

StatusOr<plan::ScaledCosts> costs_of(const ScheduleOptions& options, int stages) {
  if (options.stage_costs.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(const plan::UniformCosts costs,
                              plan::parse_uniform_costs(options.costs, options.latency));
    return plan::ScaledCosts{costs.scale, costs.for_stages(stages)};
  }
  constexpr size_t kFileBytesMax = size_t{64} << 20;
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(options.stage_costs, kFileBytesMax));
  return plan::stage_costs_from_json(text, options.stage_costs, stages, options.latency);
}

StatusOr<plan::ScheduleReport> report_of(const ScheduleOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(plan::ComputeProgram program, program_of(options));
  PENSTOCK_ASSIGN_OR_RETURN(plan::ScaledCosts costs, costs_of(options, program.stages()));
  const bool aligned = options.timeline == "aligned";
  return plan::make_report(
      std::move(program),
      {.costs = std::move(costs), .timeline = aligned ? plan::Timeline::Aligned : plan::Timeline::Earliest});
}

}  // namespace

int schedule(const ScheduleOptions& options) {
  if (!options.not_built.empty()) return not_built_yet("schedule " + options.not_built.front());
  if (options.output != "text" && options.output != "json")
    return not_built_yet("schedule -o " + options.output);
  const StatusOr<plan::ScheduleReport> report = report_of(options);
  if (!report.ok()) return report_error(report.status());
  if (!report->timeline_note.empty()) {
    say("penstock: the earliest timeline is shown: " + report->timeline_note);
  }
  print(options.output == "json" ? plan::schedule_to_json(*report)
                                 : schedule_text(*report, {.width = columns_of(stdout)}));
  return kExitSucceeded;
}

std::vector<std::string> known_schedules() {
  return plan::schedule_names();
}

}  // namespace penstock::client
