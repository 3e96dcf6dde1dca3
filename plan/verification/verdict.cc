#include <fmt/format.h>

#include "plan/verification/verify.h"

namespace penstock::plan {

std::string Violation::to_string() const {
  std::string where;
  if (rank.is_set()) where += fmt::format(" rank {}", rank.value);
  if (position >= 0) where += fmt::format(" position {}", position);
  if (!action.empty()) where += fmt::format(" {}", action);
  return fmt::format("{}:{}{} {}", rule, where, where.empty() ? "" : ":", message);
}

}  // namespace penstock::plan
