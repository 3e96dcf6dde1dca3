#include "client/commands/measured_job.h"

#include "client/commands/terminal.h"
#include "client/present/measured_runs.h"

namespace penstock::client {

StatusOr<MeasuredJob> measured_job(Coordinator& coordinator, const std::string& name) {
  MeasuredJob measured;
  PENSTOCK_ASSIGN_OR_RETURN(measured.job, coordinator.job(name));
  PENSTOCK_ASSIGN_OR_RETURN(v1::MeasurementsResponse response, coordinator.measurements(name));
  PENSTOCK_ASSIGN_OR_RETURN(measured.spec, plan::parse_job_spec(response.spec_yaml()));
  StatusOr<MeasuredRuns> runs = measured_runs(std::move(response));
  if (!runs.ok()) return with_context(runs.status(), fmt::format("job {}", name));
  if (!runs->left_out.empty())
    say(fmt::format("penstock: job {}: left out, as nothing can be told from it: {}", name, runs->left_out));
  measured.measurements = std::move(runs->response);
  measured.runs = std::move(runs->runs);
  return measured;
}

}  // namespace penstock::client
