// A child process with its output in a log file.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace penstock::client {

struct ProcessSpec {
  std::string name;                      // for messages: "worker-0"
  std::string binary;                    // path
  std::vector<std::string> arguments{};  // without the name of the program
  std::string log;                       // file for its stdout and stderr; the one before is kept as LOG.1
};

// Owns one child: it gets SIGTERM when the thread that started it ends, so start it from one that lives as
// long as the program. It has its own process group, so that Ctrl-C on the terminal reaches its owner only,
// and no blocked signals.
//
// Thread: one.
class Process {
 public:
  // Unavailable when the binary cannot be run or the log cannot be opened.
  static StatusOr<Process> start(const ProcessSpec& spec);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();  // kills what still runs

  const std::string& name() const { return name_; }
  const std::string& log() const { return log_; }
  pid_t pid() const { return pid_; }

  bool has_ended();                                // never waits
  std::string ending() const;                      // "exit code 3", "signal 9 (Killed)"; "running" before
  void send(int signal);                           // nothing once it has ended
  std::string last_log_lines(size_t lines) const;  // at most 16 KiB

 private:
  Process(std::string name, std::string log, pid_t pid);

  std::string name_;
  std::string log_;
  pid_t pid_ = -1;
  std::optional<int> wait_status_;
};

}  // namespace penstock::client
