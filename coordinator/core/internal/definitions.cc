// What of a job follows from its file, when another one takes its place.
#include "coordinator/core/internal/turn.h"

namespace penstock::coordinator {

Write redefined(Job& job, const std::shared_ptr<const plan::JobSpec>& spec) {
  job.spec = spec;
  job.split_watch = {};
  JobDefinition& definition = job.definition;
  if (definition.submitted_yaml.empty()) definition.submitted_yaml = definition.spec_yaml;
  definition.spec_yaml = spec->yaml;
  definition.schedule = spec->parallel.schedule;
  definition.ranks = spec->ranks();
  definition.stages = spec->stages();
  definition.microbatches = spec->microbatches();
  if (definition.checkpoints.empty()) definition.checkpoints = checkpoints_of(*spec, job.name());
  return PutDefinition{definition};
}

std::vector<Write> without_traces(Job& job) {
  std::vector<Write> writes;
  for (const int64_t step : job.traces.complete()) writes.push_back(DropTrace{job.name(), step});
  job.traces.clear();
  return writes;
}

}  // namespace penstock::coordinator
