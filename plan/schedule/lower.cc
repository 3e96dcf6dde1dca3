#include "plan/schedule/internal/rank_lowering.h"
#include "plan/schedule/lowered.h"
#include "plan/schedule/post_validation.h"

namespace penstock::plan {

StatusOr<LoweredProgram> lower(const ComputeProgram& program, const LoweringOptions& options) {
  if (options.step_rule == StepRule::PostValidated) {
    const bool early = options.posting == Posting::Early;
    const std::string reason = early ? why_not_post_validated(program) : "its receives are not posted early";
    if (!reason.empty()) {
      return invalid_argument("steps of {} cannot be post-validated: {}", program.schedule, reason);
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(const internal::MessagePlan plan, internal::MessagePlan::make(program, options));
  const auto own_stages = internal::stages_of_ranks(program);
  LoweredProgram lowered;
  lowered.bit_identical = accumulates_in_microbatch_order(program);
  for (int rank = 0; rank < program.ranks; ++rank) {
    internal::RankLowering lowering(program, plan, RankIndex(rank), own_stages[rank]);
    PENSTOCK_ASSIGN_OR_RETURN(RankProgram of_rank, std::move(lowering).lower());
    lowered.ranks.push_back(std::move(of_rank));
  }
  return lowered;
}

}  // namespace penstock::plan
