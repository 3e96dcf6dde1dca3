// --coordinator, the same for every command that asks it.
#pragma once

#include <CLI/CLI.hpp>

#include "client/commands/commands.h"

namespace penstock::client {

inline void add_connection(CLI::App& command, ConnectionOptions& options) {
  command
      .add_option("--coordinator", options.coordinator,
                  "Where the service answers (default: PENSTOCK_COORDINATOR, else 127.0.0.1:7070)")
      ->type_name("HOST:PORT");
}

}  // namespace penstock::client
