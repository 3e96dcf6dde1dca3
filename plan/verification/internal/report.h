// Collects violations, first ones first, and stops at the bound that verify.h promises.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "plan/verification/verify.h"

namespace penstock::plan::internal {

struct Place {
  RankIndex rank = {};
  int position = -1;
  std::string action = {};
};

class Report {
 public:
  static constexpr size_t kMaximumViolations = 20;

  template <typename... Args>
  void add(const char* rule, Place place, fmt::format_string<Args...> format, Args&&... args) {
    if (is_full()) return;
    violations_.push_back({rule, place.rank, place.position, std::move(place.action),
                           fmt::format(format, std::forward<Args>(args)...)});
  }

  void add(Violation violation) {
    if (!is_full()) violations_.push_back(std::move(violation));
  }

  bool is_empty() const { return violations_.empty(); }
  bool is_full() const { return violations_.size() >= kMaximumViolations; }
  std::vector<Violation> take() { return std::move(violations_); }

 private:
  std::vector<Violation> violations_;
};

}  // namespace penstock::plan::internal
