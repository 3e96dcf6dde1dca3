#include "tests/perf/measure/times.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"

namespace penstock::perf {

Times Times::now() {
  static const SystemClock clock;
  return {to_seconds(thread_cpu_time()), to_seconds(clock.now().time_since_epoch())};
}

double median(std::vector<double> values) {
  PENSTOCK_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace penstock::perf
