#include <nlohmann/json.hpp>

#include "client/commands/commands.h"
#include "client/commands/follow.h"
#include "client/commands/measured_job.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "client/present/stage_curves.h"

namespace penstock::client {

int curves(const CurvesOptions& options) {
  StatusOr<std::unique_ptr<Coordinator>> coordinator = connect(options.connection.coordinator);
  if (!coordinator.ok()) return report_error(coordinator.status());
  const StatusOr<MeasuredJob> measured = measured_job(**coordinator, options.name);
  if (!measured.ok()) return report_error(measured.status());
  const StageCurves curves =
      stage_curves(options.name, measured->spec, measured->measurements, measured->runs);
  if (options.output == "json") {
    print(compact(curves_json(curves)) + "\n");
  } else if (options.output == "svg") {
    print(curves_svg(curves));
  } else {
    print(curves_text(curves, {.columns = columns_of(stdout)}));
  }
  return kExitSucceeded;
}

}  // namespace penstock::client
