// A proposal for another split for people and for programs. Pure.
#pragma once

#include <optional>
#include <string>

#include "client/present/job_json.h"
#include "plan/rebalancing/judge_move.h"
#include "plan/rebalancing/propose.h"

namespace penstock::client {

// Stages now and then, the step measured, modelled and predicted, the answer, and the split as a job file has it.
std::string proposal_text(const plan::Proposal& proposal, const std::optional<plan::LastMove>& last_move);

// answer ("move", "stay" or "undo"), because, predicted_gain, model_error, step_seconds, modelled_step_seconds,
// best_step_seconds, stages[] {measured_ms, modelled_ms}, best_ms[], split (as text), layers{type: {forward_ms, backward_ms}},
// notes[] and last_move {outcome ("open", "paid" or "failed"), because, gain, predicted_gain, before}?.
Json proposal_json(const std::string& job, const plan::Proposal& proposal,
                   const std::optional<plan::LastMove>& last_move);

}  // namespace penstock::client
