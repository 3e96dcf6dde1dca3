// Work on what a caller sent, whose size in memory nobody knows before.
#pragma once

#include <new>
#include <string>
#include <type_traits>

#include "base/status.h"

namespace penstock::coordinator {

// What `work` answers, or ResourceExhausted when memory does not suffice for it: the job is refused, and not every job
// lost with the process.
template <typename Work>
std::invoke_result_t<Work> within_memory(const std::string& what, Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return resource_exhausted(
        "{}: the coordinator's memory does not suffice for this job; make it smaller (stages x "
        "microbatches)",
        what);
  }
}

}  // namespace penstock::coordinator
