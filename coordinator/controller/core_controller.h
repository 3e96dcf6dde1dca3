// The controller around the core: its thread, its clock, its store.
//
// Threads: "controller" applies events and carries commands out; "planner" checks job files and plans attempts, which
//   may take seconds for a big job and must not delay a heartbeat; "folders" keeps those of checkpoints and final weights,
//   where reading every byte of a checkpoint takes as long as the disk does and must not delay a submit; the store has its
//   own writer.
// Time: an event counts as heard when the controller takes it from the inbox, and a tick comes after everything that
//   was in the inbox with it. So a controller that was held up takes nobody's silence for what was its own.
#pragma once

#include <prometheus/registry.h>

#include <functional>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/controller/controller.h"
#include "coordinator/core/options.h"
#include "coordinator/rebalancing/consider.h"
#include "coordinator/store/store.h"

namespace penstock::coordinator {

struct ControllerOptions {
  Options core;
  Duration tick = 100ms;
  Duration restore_limit = 10s;     // for the store to commit what a restart changes
  size_t inbox = 65'536;            // calls that wait for the controller
  size_t submissions = 256;         // job files that wait to be checked
  size_t waits = 65'536;            // wait_job and wait_logs that are pending
  size_t log_lines_per_page = 500;  // of a LogPage
  std::function<void()>
      before_folder_work{};  // for tests: runs on the thread of the folders, which it may hold up
  // On the planner's thread; tests may answer something else.
  std::function<SplitAnswer(const SplitQuestion&)> consider = consider_split;
};

class CoreController : public Controller {
 public:
  // Restores what the store holds, starts the threads and returns when what the restart changes is durable.
  // Unavailable when the store does not commit. `clock` outlives the controller.
  static StatusOr<std::unique_ptr<CoreController>> start(ControllerOptions options,
                                                         std::unique_ptr<Store> store,
                                                         std::shared_ptr<prometheus::Registry> registry,
                                                         const Clock& clock);

  // Answers every pending call with Unavailable, closes every session, and writes what is queued for the
  // store. Calls after it are answered Unavailable at once. Jobs go on: their executors wait for the next
  // coordinator for a while. Thread: not the controller's.
  virtual Status stop() = 0;
};

}  // namespace penstock::coordinator
