// The catalogue's closed forms with split backwards, as programs to start from: where one fits, no answer
// is worse.
#pragma once

#include <vector>

#include "plan/generation/internal/problem.h"

namespace penstock::plan::internal {

// zb-h1 and zb-h2, or zb-v, v-half and v-min: those that keep the problem's memory limits.
std::vector<Orders> closed_forms_within_limits(const Problem& problem);

}  // namespace penstock::plan::internal
