// Keeps what must outlive the coordinator process.
//
// Execution: save() queues and returns; one writer thread takes the whole queue into one transaction (group
//   commit), so that many small saves cost one flush of the disk.
// Ordering: transactions are written in the order of save().
// Durability: `durable` is told a ticket only when that save and all before it are on disk and survive a crash
//   of the process and of the machine. A save that fails (disk full, I/O error) is tried again until it
//   succeeds: nothing is dropped, nothing overtakes it, and `health` is told why.
// Bounds: the queue holds what the core has pending (Options::transactions_pending and one save per job).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/core/command.h"
#include "coordinator/core/records.h"

namespace penstock::coordinator {

class Store {
 public:
  virtual ~Store() = default;

  // What the store held when it was opened. Thread: before start().
  virtual std::vector<StoredJob> load() = 0;
  virtual std::map<std::string, Cordon> load_cordons() = 0;

  // Starts the writer; both run on its thread. `health` is told the error when saves begin to fail or fail for
  // another reason, and OK when they succeed again, before `durable` is told so. Called once.
  virtual void start(std::function<void(Ticket)> durable, std::function<void(Status)> health) = 0;

  // Thread: one at a time, after start().
  virtual void save(Save save) = 0;

  // The losses of a job that has ended, by step, after what is queued; where that cannot be written, what is there. `done` is called on the writer's thread, or at once:
  // NotFound: no such job. ResourceExhausted: too many wait. Unavailable: stopped. DataLoss and others as the file says.
  virtual void read_losses(std::string job, std::function<void(StatusOr<std::vector<double>>)> done) = 0;

  // Writes what is queued and stops the writer. Unavailable when the last saves could not be written.
  virtual Status stop() = 0;
};

}  // namespace penstock::coordinator
