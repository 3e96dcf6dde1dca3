#include "coordinator/core/core.h"

#include <algorithm>
#include <utility>

#include "coordinator/core/internal/turn.h"

namespace penstock::coordinator {
namespace {

struct GoOn {
  Turn& turn;
  void operator()(const AdmitJob& what) { admit_job(turn, what.job); }
  void operator()(const StartAttempt& what) { start_attempt(turn, what.job, what.attempt); }
  void operator()(const EndJob& what) { finish_ending(turn, what.job); }
  void operator()(const StepsRecorded& what) { steps_recorded(turn, what.job, what.order, what.step); }
  void operator()(const ProgressSaved& what) {
    Job* job = turn.state.find_job(what.job);
    if (!job) return;
    job->saving_progress = false;
    if (job->live()) save_progress(turn, *job);
  }
};

struct Dispatch {
  Turn& turn;
  void operator()(Restore& event) { on_restore(turn, std::move(event)); }
  void operator()(Submit& event) { on_submit(turn, std::move(event)); }
  void operator()(Cancel& event) { on_cancel(turn, event); }
  void operator()(Pause& event) { on_pause(turn, event); }
  void operator()(Resume& event) { on_resume(turn, event); }
  void operator()(Drain& event) { on_drain(turn, event); }
  void operator()(Uncordon& event) { on_uncordon(turn, event); }
  void operator()(SessionOpened& event) { on_opened(turn, std::move(event)); }
  void operator()(SessionSaid& event) { on_said(turn, std::move(event)); }
  void operator()(SessionClosed& event) { on_closed(turn, event); }
  void operator()(Publish& event) { on_publish(turn, std::move(event)); }
  void operator()(LookUp& event) { on_look_up(turn, event); }
  void operator()(LookUpAbandoned& event) { on_abandoned(turn, event); }
  void operator()(AttemptPlanned& event) { on_planned(turn, std::move(event)); }
  void operator()(SplitConsidered& event) { on_split_considered(turn, std::move(event)); }
  void operator()(WeightsCommitted& event) { on_weights_committed(turn, event); }
  void operator()(CheckpointCommitted& event) { on_checkpoint_committed(turn, event); }
  void operator()(CheckpointFound& event) { on_checkpoint_found(turn, event); }
  void operator()(StoreDurable& event) {
    for (Continuation& what : turn.state.store.durable(event.ticket)) std::visit(GoOn{turn}, what);
    answer_durable(turn);
  }
  void operator()(StoreHealth& event) { turn.state.store_health = std::move(event.status); }
  void operator()(AssignMore&) { assign_more(turn); }
  void operator()(Tick&) { on_tick(turn); }
};

}  // namespace

std::vector<Command> apply(State& state, Event event, Now now) {
  Turn turn{.state = state, .now = now, .commands = {}};
  std::visit(Dispatch{turn}, event);
  state.placing_due |= turn.placing_due;
  if (state.placing_due && now.time >= state.place_next) place_queue(turn);
  return std::move(turn.commands);
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }, ' ');
  return text;
}

std::string counted(int64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

Ticket Turn::save(std::vector<Write> writes) {
  const Ticket ticket = state.store.next_ticket();
  emit(Save{ticket, std::move(writes)});
  return ticket;
}

void Turn::send(SessionId session, CoordinatorMessage message) {
  commands.emplace_back(std::in_place_type<SendToWorker>, session, std::move(message));
}

void Turn::refuse(Refusal refusal) {
  ++state.refused[static_cast<size_t>(refusal)];
  observe(ReportRefused{refusal});
}

const char* to_string(Refusal refusal) {
  switch (refusal) {
    case Refusal::Stale:
      return "stale";
    case Refusal::Duplicate:
      return "duplicate";
    case Refusal::OutOfWindow:
      return "out-of-window";
    case Refusal::Malformed:
      return "malformed";
  }
  return "?";
}

}  // namespace penstock::coordinator
