#include "client/commands/commands.h"
#include "client/commands/terminal.h"

namespace penstock::client {

int not_built_yet(const std::string& what) {
  return report_error(unimplemented("{}: designed, and not built yet", what));
}

}  // namespace penstock::client
