// Those who wait for a job to change or for its log to grow.
//
// Thread: one at a time. Callbacks run inside the calls.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "coordinator/controller/controller.h"
#include "coordinator/core/core.h"

namespace penstock::coordinator {

class Waits {
 public:
  Waits(size_t bound, size_t log_lines_per_page) : bound_(bound), log_lines_per_page_(log_lines_per_page) {}

  using OnJob = std::function<void(StatusOr<JobView>)>;
  using OnLog = std::function<void(StatusOr<LogPage>)>;

  // Answers at once when there is something to answer, or keeps the wait.
  void add(WaitId id, JobWait wait, OnJob done, const State& state, int64_t unix_ms);
  void add(WaitId id, LogWait wait, OnLog done, const State& state);

  void job_changed(const std::string& job, const State& state, int64_t unix_ms);
  void log_grew(const std::string& job, const State& state);

  // False when the wait is not (any more) here.
  bool abandon(WaitId id, const Status& why);
  void abandon_all(const Status& why);

  size_t size() const { return names_.size(); }

 private:
  template <typename Wait, typename Done>
  struct Pending {
    Wait wait;
    Done done;
  };
  template <typename Wait, typename Done>
  using ByJob = std::map<std::string, std::map<WaitId, Pending<Wait, Done>>>;

  template <typename Wait, typename Done, typename Ask>
  void answer(ByJob<Wait, Done>& waits, const std::string& job, Ask ask);

  const size_t bound_;
  const size_t log_lines_per_page_;
  ByJob<JobWait, OnJob> jobs_;
  ByJob<LogWait, OnLog> logs_;
  std::map<WaitId, std::string> names_;  // of the job that each waits for
};

}  // namespace penstock::coordinator
