#include "worker/executor/check_assignment.h"

#include <algorithm>

#include "plan/spec/rank_place.h"
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

Status check_program(const char* what, const plan::JobSpec& job, const Assignment& assignment,
                     const plan::RankProgram& program, int64_t microbatches) {
  const auto of_program = [&](const char* count) { return fmt::format("{} of the {}", count, what); };
  PENSTOCK_RETURN_IF_ERROR(expect_equal(of_program("ranks").c_str(), job.parallel.pipeline, program.ranks));
  PENSTOCK_RETURN_IF_ERROR(expect_equal(of_program("stages").c_str(), job.stages(), program.stages));
  PENSTOCK_RETURN_IF_ERROR(
      expect_equal(of_program("microbatches").c_str(), microbatches, program.microbatches));
  const plan::RankPlace place = plan::place_of_rank(job.parallel, assignment.rank);
  if (program.rank != place.pipeline_rank) {
    return invalid_argument(
        "assignment: rank {} was given the {} of rank {}{}", assignment.rank.value, what, program.rank.value,
        job.parallel.pipelines() == 1
            ? ""
            : fmt::format(" in its pipeline, expected that of rank {}", place.pipeline_rank.value));
  }
  const plan::Verdict verdict = plan::verify(program);
  if (verdict.valid()) return ok_status();
  return invalid_argument("assignment: the {} of rank {} is refused: {}", what, program.rank.value,
                          verdict.violations.front().to_string());
}

// The pass runs on the slots of the training: the same stages, and no more slots than it has.
Status check_validation(const plan::JobSpec& job, const Assignment& assignment) {
  const bool wanted = job.validation.every > 0;
  if (wanted != assignment.validation.has_value()) {
    return invalid_argument("assignment: the job {} validation, and {} program for it has come",
                            wanted ? "has" : "has no", assignment.validation ? "a" : "no");
  }
  if (!wanted) return ok_status();
  const plan::RankProgram& program = *assignment.validation;
  PENSTOCK_RETURN_IF_ERROR(
      check_program("validation program", job, assignment, program, job.validation_microbatches()));
  if (!program.forward_only) return invalid_argument("assignment: the validation program has backwards");
  const auto fits = [&](const plan::StageBuffers& buffers) {
    return std::any_of(assignment.program.buffers.begin(), assignment.program.buffers.end(),
                       [&](const plan::StageBuffers& training) {
                         return training.stage == buffers.stage &&
                                buffers.activation_slots <= training.activation_slots;
                       });
  };
  for (const plan::StageBuffers& buffers : program.buffers) {
    if (fits(buffers)) continue;
    return invalid_argument(
        "assignment: validation takes {} activation slots of stage {}; training has fewer",
        buffers.activation_slots, buffers.stage.value);
  }
  return ok_status();
}

// Every rank of the job has a host, and this one is among them.
Status check_rank(const plan::JobSpec& job, const Assignment& assignment) {
  PENSTOCK_RETURN_IF_ERROR(
      expect_equal("hosts of ranks", static_cast<size_t>(job.ranks()), assignment.rank_hosts.size()));
  if (assignment.rank.is_set() && assignment.rank.value < job.ranks()) return ok_status();
  return invalid_argument("assignment: rank: expected 0 to {} (pipeline x expert x data), found {}",
                          job.ranks() - 1, assignment.rank.value);
}

// Messages that are written into the receiver's memory stay within one host.
Status check_hosts(const plan::JobSpec& job, const std::vector<std::string>& hosts) {
  if (job.parallel.p2p != plan::P2pMode::OneSided) return ok_status();
  for (size_t rank = 1; rank < hosts.size(); ++rank) {
    if (hosts[rank] == hosts[0]) continue;
    return invalid_argument(
        "assignment: parallel.p2p is one-sided, which stays within one host: expected all ranks on that of rank 0, "
        "{}, found rank {} on {}; set parallel.p2p: {{mode: two-sided}} for ranks on several hosts",
        hosts[0], rank, hosts[rank]);
  }
  return ok_status();
}

}  // namespace

StatusOr<plan::JobSpec> check_assignment(const Assignment& assignment) {
  PENSTOCK_ASSIGN_OR_RETURN(plan::JobSpec job, plan::parse_job_spec(assignment.spec_yaml));
  const plan::RankProgram& program = assignment.program;
  PENSTOCK_RETURN_IF_ERROR(check_rank(job, assignment));
  PENSTOCK_RETURN_IF_ERROR(check_split(job.parallel.split, assignment.split));
  PENSTOCK_RETURN_IF_ERROR(check_program("program", job, assignment, program, job.microbatches()));
  if (program.forward_only) return invalid_argument("assignment: a forward-only program does not train");
  PENSTOCK_RETURN_IF_ERROR(
      expect_equal("updates of the program", std::max(1, job.parallel.flush_every), program.updates));
  const char* const step = plan::is_post_validated(program) ? "post-validated" : "barrier";
  PENSTOCK_RETURN_IF_ERROR(expect_equal("optimizer_step", job.parallel.optimizer_step, std::string(step)));
  const int64_t steps = job.train.steps - assignment.first_step;
  if (assignment.first_step < 0 || steps < 0 || steps % program.updates != 0) {
    return invalid_argument("assignment: steps {} to {} with a program of {} updates", assignment.first_step,
                            job.train.steps, program.updates);
  }
  PENSTOCK_RETURN_IF_ERROR(check_validation(job, assignment));
  PENSTOCK_RETURN_IF_ERROR(check_hosts(job, assignment.rank_hosts));
  return job;
}

}  // namespace penstock::worker
