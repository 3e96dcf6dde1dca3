#include "client/commands/measured_job.h"

#include "client/present/measured_runs.h"

namespace penstock::client {

StatusOr<MeasuredJob> measured_job(Coordinator& coordinator, const std::string& name) {
  MeasuredJob measured;
  PENSTOCK_ASSIGN_OR_RETURN(measured.job, coordinator.job(name));
  PENSTOCK_ASSIGN_OR_RETURN(measured.measurements, coordinator.measurements(name));
  PENSTOCK_ASSIGN_OR_RETURN(measured.spec, plan::parse_job_spec(measured.measurements.spec_yaml()));
  PENSTOCK_ASSIGN_OR_RETURN(measured.runs, measured_runs(measured.measurements));
  return measured;
}

}  // namespace penstock::client
