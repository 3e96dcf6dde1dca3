// The options of the planning commands: `penstock partition`, `plan`, `fit` and `diagnose`.
#pragma once

namespace CLI {
class App;
}

#include "client/commands/commands.h"

namespace penstock::client {

// Adds the commands; the one that is parsed runs and leaves its exit code in `result`, which outlives `app`.
// What layers cost, of commands that plan.
void add_costs(CLI::App& command, CostOptions& options);

void add_planning(CLI::App& app, int& result);

}  // namespace penstock::client
