// How long the calling thread has computed, by both clocks, and the middle of several measurements.
#pragma once

#include <vector>

namespace penstock::perf {

struct Times {
  double cpu = 0;   // seconds of the calling thread (CLOCK_THREAD_CPUTIME_ID): other programs move it little
  double wall = 0;  // seconds

  static Times now();
  Times operator-(const Times& other) const { return {cpu - other.cpu, wall - other.wall}; }
};

// The middle one, or the mean of the two middle ones. There is at least one.
double median(std::vector<double> values);

}  // namespace penstock::perf
