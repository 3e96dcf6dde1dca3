// Answers that wait for the disk: to whatever changes jobs and cordons.
#include <algorithm>
#include <utility>

#include "coordinator/core/internal/turn.h"

namespace penstock::coordinator {
namespace {

void refuse(Turn& turn, AnswerSubmit& answer, const std::string& job, const std::string& why,
            StatusCode code) {
  answer.outcome =
      error(code,
            "submit: job {} is taken but not on disk yet: {}; it may still run, once the store commits: "
            "look for it before you submit it anew, or repeat the call with its request id",
            job, why);
  turn.emit(std::move(answer));
}

void refuse(Turn& turn, AnswerControl& answer, const std::string& job, const std::string& why,
            StatusCode code) {
  answer.state =
      error(code,
            "{}: job {} has been told{}, but that is not on disk yet: {}; it shows it once the store "
            "commits",
            answer.what, job, answer.what == std::string("cancel") ? " to stop" : "", why);
  turn.emit(std::move(answer));
}

void refuse(Turn& turn, AnswerWorker& answer, const std::string& worker, const std::string& why,
            StatusCode code) {
  answer.devices =
      error(code, "{}: worker {}: done, but that is not on disk yet: {}", answer.what, worker, why);
  turn.emit(std::move(answer));
}

void refuse(Turn& turn, PendingAnswer& pending, const std::string& why, StatusCode code) {
  std::visit([&](auto& answer) { refuse(turn, answer, pending.name, why, code); }, pending.answer);
}

}  // namespace

Status store_trouble(const State& state) {
  const Status& health = state.store_health;
  if (health.ok()) return ok_status();
  const bool full = health.code() == StatusCode::kResourceExhausted;
  return error(full ? StatusCode::kResourceExhausted : StatusCode::kUnavailable, "the store cannot write: {}",
               message(health));
}

void answer_when_durable(Turn& turn, PendingAnswer pending) {
  State& state = turn.state;
  if (state.store.is_durable(pending.ticket)) {
    std::visit([&](auto& answer) { turn.emit(std::move(answer)); }, pending.answer);
    return;
  }
  if (state.answers.size() >= state.options.answers_pending) {
    return refuse(turn, pending, fmt::format("{} calls wait for the store already", state.answers.size()),
                  StatusCode::kResourceExhausted);
  }
  pending.since = turn.now.time;
  state.answers.push_back(std::move(pending));
}

void answer_durable(Turn& turn) {
  std::erase_if(turn.state.answers, [&](PendingAnswer& pending) {
    if (!turn.state.store.is_durable(pending.ticket)) return false;
    std::visit([&](auto& answer) { turn.emit(std::move(answer)); }, pending.answer);
    return true;
  });
}

void answer_impatient(Turn& turn) {
  const Options& options = turn.state.options;
  const Status trouble = store_trouble(turn.state);
  const Duration patience = trouble.ok() ? options.store_patience_unexplained : options.store_patience;
  std::erase_if(turn.state.answers, [&](PendingAnswer& pending) {
    if (turn.now.time - pending.since < patience) return false;
    const std::string why = trouble.ok() ? fmt::format("the store has not committed for {:.0f} s",
                                                       to_seconds(turn.now.time - pending.since))
                                         : message(trouble);
    refuse(turn, pending, why, trouble.ok() ? StatusCode::kUnavailable : trouble.code());
    return true;
  });
}

}  // namespace penstock::coordinator
