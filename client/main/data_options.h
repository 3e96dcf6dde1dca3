// The options of `penstock data inspect` and the way to `penstock data prepare`.
#pragma once

namespace CLI {
class App;
}

namespace penstock::client {

// Adds the command; when it is parsed it runs and leaves its exit code in `result`, which outlives `app`.
void add_data(CLI::App& app, int& result);

}  // namespace penstock::client
