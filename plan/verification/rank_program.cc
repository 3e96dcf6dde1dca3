#include "plan/verification/internal/rank_checker.h"
#include "plan/verification/verify.h"

namespace penstock::plan {

Verdict verify(const RankProgram& program) {
  internal::Report report;
  internal::RankFacts facts = internal::RankChecker(program, report).run();
  Verdict verdict;
  if (report.is_empty()) {
    verdict.bit_identical = facts.accumulates_in_order;
    verdict.high_water = std::move(facts.high_water);
  }
  verdict.violations = report.take();
  return verdict;
}

}  // namespace penstock::plan
