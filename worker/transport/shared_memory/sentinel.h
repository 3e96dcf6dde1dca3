// Sees the end of processes, within milliseconds and without asking them: a thread that sleeps on their pidfds.
//
// Thread: start and stop by the owner; `ended` is called on the sentinel's own, once a process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/status.h"

namespace penstock::worker {

class Sentinel {
 public:
  Sentinel() = default;
  ~Sentinel() { stop(); }

  // Before start(). Unavailable: there is no such process any more.
  Status watch(int rank, pid_t pid);
  Status start(std::function<void(int rank)> ended);
  void stop();

 private:
  struct Watched {
    int rank;
    FileDescriptor process;
  };
  void loop(const std::function<void(int)>& ended);

  std::vector<Watched> watched_;
  FileDescriptor stop_;
  std::thread thread_;
};

}  // namespace penstock::worker
