// What a job's last change of split has brought, and with it what is to be done: the second half of the decision of `penstock
// rebalance` and of a coordinator that rebalances by itself. Both are slow to go back: one busy minute of a machine must not undo
// for good what would have paid.
//
//   Open    samples are too few, or the halves of the steps since then do not agree
//   Paid    at least half of what the runs before it promised has come
//   Failed  less has, in the older half of the steps since then and in the newer one
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/rebalancing/propose.h"

namespace penstock::plan {

enum class MoveOutcomeSoFar : uint8_t { Open, Paid, Failed };

struct LastMove {
  Split before;
  MoveOutcomeSoFar outcome = MoveOutcomeSoFar::Open;
  double gain = 0;            // part of a step, that came
  double predicted_gain = 0;  // above 0
  std::string because;
};

// The newest run against the last one of another split, and what the runs up to that one promised. Nothing where there is none,
// where it differs in more (another schedule, other ranks), or where they promised no gain: a split that was brought by a
// person, or gone back to. `samples_min`: as ProposalOptions has it. Errors: those of propose().
StatusOr<std::optional<LastMove>> judge_last_move(const JobSpec& job, const std::vector<MeasuredRun>& runs,
                                                  int64_t samples_min = ProposalOptions().samples_min);

// A move is judged before there is another one.
enum class SplitVerdict : uint8_t { Stay, Move, Undo };
struct SplitDecision {
  SplitVerdict verdict = SplitVerdict::Stay;
  Split split;  // to go on with
  std::string because;
};
SplitDecision decide(const Proposal& proposal, const std::optional<LastMove>& last_move);

}  // namespace penstock::plan
