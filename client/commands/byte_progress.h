// How far long work over files has come, on stderr: nothing for what is done within a second; then redrawn every
// second on a terminal, a line every ten seconds elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace penstock::client {

class ByteProgress {
 public:
  // "verify: 34% of 12.3GiB" for verb "verify".
  ByteProgress(std::string verb, int64_t total_bytes);
  ~ByteProgress();
  ByteProgress(const ByteProgress&) = delete;
  ByteProgress& operator=(const ByteProgress&) = delete;

  void add(int64_t bytes);

 private:
  const std::string verb_;
  const int64_t total_bytes_;
  const bool terminal_;
  int64_t done_bytes_ = 0;
  SystemClock clock_;
  TimePoint next_;
  bool drawn_ = false;
};

}  // namespace penstock::client
