#include "worker/agent/grpc_library.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>

#include "base/log.h"

namespace penstock::worker {

void prepare_grpc() {
  static const bool prepared = [] {
    gpr_set_log_function([](gpr_log_func_args* line) { log::debug("grpc: {}", line->message); });
    grpc_init();
    return true;
  }();
  (void)prepared;
}

}  // namespace penstock::worker
