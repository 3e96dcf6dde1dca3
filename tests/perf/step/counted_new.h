// Counts what operator new is asked for in this program: by its own code, and by the libraries under it.
#pragma once

#include <cstdint>

namespace penstock::perf {

struct Allocations {
  int64_t own = 0;        // from this program's code
  int64_t libraries = 0;  // oneDNN makes a few small things in every execution
};
Allocations allocations_so_far();

}  // namespace penstock::perf
