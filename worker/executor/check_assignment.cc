#include "worker/executor/check_assignment.h"

#include "plan/verification/verify.h"

namespace penstock::worker {
namespace {

template <typename Expected, typename Found>
Status expect_equal(const char* what, const Expected& expected, const Found& found) {
  if (expected == found) return ok_status();
  return invalid_argument("assignment: {}: expected {} as in the job file, found {}", what, expected, found);
}

std::string text_of(const std::vector<plan::Item>& items) {
  std::string text;
  for (const plan::Item& item : items) text += (text.empty() ? "" : ", ") + plan::to_string(item);
  return text;
}

Status check_split(const plan::Split& expected, const plan::Split& found) {
  PENSTOCK_RETURN_IF_ERROR(expect_equal("stages of the split", expected.size(), found.size()));
  for (size_t stage = 0; stage < expected.size(); ++stage) {
    if (expected[stage] != found[stage]) {
      return invalid_argument("assignment: stage {}: expected items [{}] as in the job file, found [{}]",
                              stage, text_of(expected[stage]), text_of(found[stage]));
    }
  }
  return ok_status();
}

}  // namespace

StatusOr<plan::JobSpec> check_assignment(const Assignment& assignment) {
  PENSTOCK_ASSIGN_OR_RETURN(plan::JobSpec job, plan::parse_job_spec(assignment.spec_yaml));
  const plan::RankProgram& program = assignment.program;
  PENSTOCK_RETURN_IF_ERROR(check_split(job.parallel.split, assignment.split));
  PENSTOCK_RETURN_IF_ERROR(expect_equal("ranks of the program", job.ranks(), program.ranks));
  PENSTOCK_RETURN_IF_ERROR(expect_equal("stages of the program", job.stages(), program.stages));
  PENSTOCK_RETURN_IF_ERROR(
      expect_equal("microbatches of the program", job.microbatches(), program.microbatches));
  if (program.rank != assignment.rank) {
    return invalid_argument("assignment: rank {} was given the program of rank {}", assignment.rank.value,
                            program.rank.value);
  }
  if (program.forward_only) return invalid_argument("assignment: a forward-only program does not train");
  const int64_t steps = job.train.steps - assignment.first_step;
  if (assignment.first_step < 0 || steps < 0 || steps % program.updates != 0) {
    return invalid_argument("assignment: steps {} to {} with a program of {} updates", assignment.first_step,
                            job.train.steps, program.updates);
  }
  const plan::Verdict verdict = plan::verify(program);
  if (!verdict.valid()) {
    return invalid_argument("assignment: the program of rank {} is refused: {}", program.rank.value,
                            verdict.violations.front().to_string());
  }
  return job;
}

}  // namespace penstock::worker
