#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "client/present/step_trace.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/schedule_source.h"

namespace penstock::client {
namespace {

struct TracedJob {
  plan::ComputeProgram program;  // of each pipeline
  std::vector<TracedPipeline> pipelines;
};

// The program follows from the job file, as it did where the job was planned.
StatusOr<TracedJob> traced_job(const v1::TraceResponse& trace) {
  TracedJob job;
  PENSTOCK_ASSIGN_OR_RETURN(const plan::JobSpec spec, plan::parse_job_spec(trace.spec_yaml()));
  PENSTOCK_ASSIGN_OR_RETURN(job.program, plan::compute_program(spec));
  PENSTOCK_ASSIGN_OR_RETURN(job.pipelines, traced_pipelines(spec, job.program, trace));
  return job;
}

Status write_perfetto(const TracedJob& job, const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, trace_perfetto(job.program, job.pipelines));
  return write_atomically(path, text);
}

Status show(const TraceOptions& options, const v1::TraceResponse& trace) {
  PENSTOCK_ASSIGN_OR_RETURN(const TracedJob job, traced_job(trace));
  if (options.output == "json") {
    print(compact(trace_json(options.name, trace, job.pipelines)) + "\n");
    return ok_status();
  }
  if (!options.output.empty()) PENSTOCK_RETURN_IF_ERROR(write_perfetto(job, options.output));
  print(trace_text(trace, job.pipelines));
  return ok_status();
}

// Why no step of the job's program is traced, where that is so; else what the coordinator says.
Status explained(Coordinator& coordinator, const std::string& name, const Status& not_there) {
  if (not_there.code() != StatusCode::kNotFound) return not_there;
  const StatusOr<v1::Job> job = coordinator.job(name);
  if (!job.ok()) return not_there;
  const StatusOr<plan::JobSpec> spec = plan::parse_job_spec(job->spec_yaml());
  if (!spec.ok() || spec->trace.every == 0) return not_there;
  const StatusOr<plan::ComputeProgram> program = plan::compute_program(*spec);
  const std::string why_not = program.ok() ? why_not_traced(*program) : "";
  return why_not.empty() ? not_there : not_found("job {}: no step of it is traced: {}", name, why_not);
}

}  // namespace

int trace(const TraceOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<v1::TraceResponse> trace = (*coordinator)->trace(options.name, options.step);
  if (!trace.ok()) return report_error(explained(**coordinator, options.name, trace.status()));
  if (const Status shown = show(options, *trace); !shown.ok()) return report_error(shown);
  return output_written() ? kExitSucceeded : kExitFailed;
}

}  // namespace penstock::client
