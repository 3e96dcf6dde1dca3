// The newest log lines of a job, numbered through from 0.
#pragma once

#include <cstdint>
#include <deque>

#include "coordinator/core/views.h"

namespace penstock::coordinator {

struct LogLimits {
  size_t lines = 10'000;
  size_t bytes = 4u << 20;
  size_t line_bytes = 4096;  // longer lines are cut, and end with a mark that says so
};

class LogRing {
 public:
  void add(LogLineView line, const LogLimits& limits);
  void clear();  // numbering goes on

  // At most `limit` lines from `cursor` on, of `rank` or of all when it is unset. `ended` is left false.
  LogPage read(uint64_t cursor, RankIndex rank, size_t limit) const;

  uint64_t next() const { return first_ + lines_.size(); }
  size_t lines() const { return lines_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  void drop_oldest();

  std::deque<LogLineView> lines_;
  uint64_t first_ = 0;
  size_t bytes_ = 0;
};

}  // namespace penstock::coordinator
