// How far one rank has come with the backwards of every update, along its list of actions.
#pragma once

#include <optional>
#include <vector>

#include "plan/schedule/program.h"

namespace penstock::plan::internal {

// The stages that each rank holds, ascending.
std::vector<std::vector<StageIndex>> stages_of_ranks(const ComputeProgram& program);

class UpdateProgress {
 public:
  // `own_stages`: of this rank, ascending; must outlive this.
  UpdateProgress(const ComputeProgram& program, RankIndex rank, const std::vector<StageIndex>& own_stages);

  // Notes that `work` has ended. True when it was the stage's last backward of its update on this rank.
  bool finish(const Work& work);

  // The next update, in order, of which this rank has no backward left; each is returned once.
  std::optional<int> take_finished_update();

  int finished_updates() const { return next_; }
  int local(StageIndex stage) const;

 private:
  int update_of(const Work& work) const { return work.microbatch.value / microbatches_; }
  int& left_of(const Work& work) { return left_of_stage_[local(work.stage) * updates_ + update_of(work)]; }

  const std::vector<StageIndex>& own_stages_;
  int microbatches_;
  size_t updates_;
  bool forward_only_;
  std::vector<int> left_of_stage_;   // [own stage, update]
  std::vector<int> left_of_update_;  // [update]
  int next_ = 0;
};

}  // namespace penstock::plan::internal
