// What a daemon tells of its host.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace penstock::worker {

// Names the machine: its machine id where there is one, its host name otherwise.
std::string host_id();

// Processor model and the instruction sets on which the bits of a result may depend.
std::string cpu_fingerprint();

// Greater than any that an earlier process of this name chose, as long as the wall clock does not go back.
int64_t new_incarnation(const Clock& clock);

}  // namespace penstock::worker
