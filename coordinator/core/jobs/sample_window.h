// How many samples of each series are kept of an attempt (measurements.h): fewer where its ranks hold many stages.
#pragma once

#include <cstddef>

namespace penstock::coordinator {

// The newest of a series are kept, at least so many and less than twice as many. `held`: stages by ranks that hold them, all
// together.
size_t sample_window(size_t held);

}  // namespace penstock::coordinator
