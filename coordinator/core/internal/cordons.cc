// Workers that a person takes out of service: they get no new ranks, whoever restarts, and keep those that they have to the end
// of their attempts.
#include <algorithm>
#include <utility>

#include "base/text.h"
#include "coordinator/core/internal/turn.h"

namespace penstock::coordinator {
namespace {

Status no_such_worker(const Fleet& fleet, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, worker] : fleet.workers) names.push_back(known);
  const std::string nearest = nearest_name(name, names);
  return not_found("worker {}: not known{}", name,
                   nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
}

// A store that does not commit must not be given more and more to write.
Status can_write(const State& state, const char* what, const std::string& worker) {
  if (state.store.pending() < state.options.transactions_pending) return ok_status();
  return unavailable(
      "{}: worker {}: nothing was changed: the store has {} transactions that are not on disk yet; look "
      "at the coordinator's log",
      what, worker, state.store.pending());
}

Status can_drain(const State& state, const std::string& worker) {
  const Fleet& fleet = state.fleet;
  const bool is_cordoned = fleet.cordons.contains(worker);
  if (!is_cordoned && !fleet.workers.contains(worker))
    return with_context(no_such_worker(fleet, worker), "drain");
  if (is_cordoned) return ok_status();
  if (fleet.cordons.size() >= state.options.workers)
    return resource_exhausted(
        "drain: worker {}: {} workers are drained already; uncordon those that are gone", worker,
        fleet.cordons.size());
  return can_write(state, "drain", worker);
}

Status can_uncordon(const State& state, const std::string& worker) {
  const Fleet& fleet = state.fleet;
  if (fleet.cordons.contains(worker)) return can_write(state, "uncordon", worker);
  return fleet.workers.contains(worker) ? ok_status()
                                        : with_context(no_such_worker(fleet, worker), "uncordon");
}

void answer(Turn& turn, ReplyId reply, const std::string& worker, Ticket ticket, const char* what) {
  answer_when_durable(turn,
                      {ticket, worker, AnswerWorker{reply, views_of_worker(turn.state.fleet, worker), what}});
}

}  // namespace

void on_drain(Turn& turn, const Drain& event) {
  Fleet& fleet = turn.state.fleet;
  if (const Status refused = can_drain(turn.state, event.worker); !refused.ok())
    return turn.emit(AnswerWorker{event.reply, refused, "drain"});
  if (fleet.cordons.contains(event.worker))
    return answer(turn, event.reply, event.worker, turn.state.store.last(), "drain");
  const Cordon cordon{event.principal, turn.now.unix_ms};
  fleet.cordons[event.worker] = cordon;
  turn.placing_due = true;
  turn.say("worker {} is drained by {}: it gets no new ranks", event.worker, event.principal);
  answer(turn, event.reply, event.worker, turn.save({PutCordon{event.worker, cordon}}), "drain");
}

void on_uncordon(Turn& turn, const Uncordon& event) {
  Fleet& fleet = turn.state.fleet;
  if (const Status refused = can_uncordon(turn.state, event.worker); !refused.ok())
    return turn.emit(AnswerWorker{event.reply, refused, "uncordon"});
  if (fleet.cordons.erase(event.worker) == 0)
    return answer(turn, event.reply, event.worker, turn.state.store.last(), "uncordon");
  turn.placing_due = true;
  turn.say("worker {} takes work again, says {}", event.worker, event.principal);
  answer(turn, event.reply, event.worker, turn.save({DropCordon{event.worker}}), "uncordon");
}

}  // namespace penstock::coordinator
