// The command line of `penstock`: options, help and examples.
// The only place that includes CLI11, which is slow to compile.
#pragma once

namespace penstock::client {

// Parses, runs the command and returns its exit code. Options that do not parse: 2, and the reason on stderr.
int run_command_line(int argc, char** argv);

}  // namespace penstock::client
