// Turns SIGINT, SIGTERM and SIGHUP into something that a program can wait for.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace penstock::client {

// Make one before any other thread starts: the signals are blocked in this thread and in all that it starts.
//
// Thread: any; `when_interrupted` runs on the watcher's own thread.
class InterruptWatcher {
 public:
  InterruptWatcher();
  ~InterruptWatcher();  // unblocks the signals again
  InterruptWatcher(const InterruptWatcher&) = delete;
  InterruptWatcher& operator=(const InterruptWatcher&) = delete;

  // How often one came: 1 asks to drain, more ask to hurry.
  int count() const;

  // True as soon as one has come, false after `at_most`.
  bool wait_for(Duration at_most) const;

  // Calls `action` at the first one, at once when it has come; replaces the action before. nullptr: none. No
  // call is in progress once this has returned.
  void when_interrupted(std::function<void()> action);

 private:
  void watch();

  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
  int count_ = 0;                 // guarded by mutex_
  std::function<void()> action_;  // guarded by mutex_
  int signals_ = -1;
  int stop_ = -1;
  std::thread thread_;
};

}  // namespace penstock::client
