// The workers as Prometheus HTTP service discovery wants them.
#pragma once

#include <string>
#include <vector>

#include "coordinator/controller/controller.h"
#include "coordinator/core/views.h"

namespace penstock::coordinator {

// A JSON list: one target a worker daemon that serves metrics and is not lost, labelled with its name and
// host.
std::string discovery_page(const std::vector<WorkerView>& workers);

// The same of the fleet as it is now; waits for the controller, and throws when it does not answer within a
// second, so that Prometheus keeps the list that it has.
std::string discovery_page(Controller& controller);

}  // namespace penstock::coordinator
