// Whether pools check what is done with their memory (slot_ledger.h): in debug builds. Thread: any.
#pragma once

namespace penstock::worker {

#ifdef NDEBUG
constexpr bool kChecksMemory = false;
#else
constexpr bool kChecksMemory = true;
#endif

}  // namespace penstock::worker
