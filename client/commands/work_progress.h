// How far long work has come, on stderr where that is a terminal: nothing for what is done within a second, then drawn
// anew every second, and wiped when the work is over. Elsewhere nothing: what is read by programs stays clean.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"

namespace penstock::client {

// Where it is shown.
struct ProgressScreen {
  const Clock& clock;
  std::function<void(const std::string&)> draw;  // none: it is no terminal

  static ProgressScreen of_stderr();
};

class WorkProgress {
 public:
  // "verify: 34% of 12.3GiB" for "verify".
  static WorkProgress of_bytes(std::string verb, int64_t total,
                               ProgressScreen screen = ProgressScreen::of_stderr());
  // "list: 34 of 120 checkpoints" for "list" and "checkpoints".
  static WorkProgress of_things(std::string verb, int64_t total, std::string things,
                                ProgressScreen screen = ProgressScreen::of_stderr());
  ~WorkProgress();
  WorkProgress(const WorkProgress&) = delete;
  WorkProgress& operator=(const WorkProgress&) = delete;

  void add(int64_t amount);

 private:
  using Text = std::function<std::string(int64_t done)>;
  WorkProgress(Text text, ProgressScreen screen);

  const Text text_;
  const ProgressScreen screen_;
  int64_t done_ = 0;
  TimePoint next_;
  bool drawn_ = false;
};

}  // namespace penstock::client
