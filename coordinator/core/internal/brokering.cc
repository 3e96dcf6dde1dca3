#include <algorithm>
#include <utility>

#include "coordinator/core/internal/turn.h"
#include "plan/spec/rank_groups.h"

namespace penstock::coordinator {
namespace {

// The rank of the job that a key names by its number in a group. The group is one of the job, and the number in it.
RankIndex rank_in_job(const Job& job, const CommunicatorKey& key) {
  const StatusOr<plan::RankGroup> group = plan::group_named(job.spec->parallel, key.communicator);
  return group->ranks[static_cast<size_t>(key.rank.value)];
}

// The live attempt that the key belongs to; Aborted when there is none, InvalidArgument for a group that the job lacks, or
// a rank that the group lacks.
StatusOr<const Job*> attempt_of(State& state, const CommunicatorKey& key) {
  const Job* job = state.find_job(key.attempt.job);
  if (!job || !job->live() || !job->attempt || job->attempt->number != key.attempt.attempt) {
    return aborted("job {} attempt {} is not running (current attempt: {})", key.attempt.job,
                   key.attempt.attempt, job && job->attempt ? job->attempt->number : 0);
  }
  const std::string where = fmt::format("job {} attempt {}", key.attempt.job, key.attempt.attempt);
  const StatusOr<plan::RankGroup> group = plan::group_named(job->spec->parallel, key.communicator);
  if (!group.ok()) return with_context(group.status(), where);
  const auto ranks = static_cast<int>(group->ranks.size());
  if (!key.rank.is_set() || key.rank.value >= ranks) {
    return invalid_argument("{}: rank in {}: expected 0 to {}, found {}", where, group->name, ranks - 1,
                            key.rank.value);
  }
  return job;
}

Status stale_incarnation(const Job& job, const CommunicatorKey& key, const std::string& expected) {
  return aborted("job {} attempt {} rank {}: incarnation {} expected, found {}", key.attempt.job,
                 key.attempt.attempt, rank_in_job(job, key).value, expected, key.attempt.incarnation);
}

Status may_publish(State& state, const CommunicatorKey& key) {
  PENSTOCK_ASSIGN_OR_RETURN(const Job* job, attempt_of(state, key));
  const RankIndex rank = rank_in_job(*job, key);
  const int64_t expected = job->attempt->ranks[static_cast<size_t>(rank.value)].incarnation;
  if (key.attempt.incarnation == expected) return ok_status();
  return stale_incarnation(*job, key, std::to_string(expected));
}

// Any rank of the attempt may ask.
Status may_look_up(State& state, const CommunicatorKey& key) {
  PENSTOCK_ASSIGN_OR_RETURN(const Job* job, attempt_of(state, key));
  const std::vector<RankState>& ranks = job->attempt->ranks;
  const bool takes_part = std::any_of(ranks.begin(), ranks.end(), [&](const RankState& rank) {
    return rank.incarnation == key.attempt.incarnation;
  });
  return takes_part ? ok_status() : stale_incarnation(*job, key, "one of its workers");
}

Status overdue(State& state, const CommunicatorKey& key) {
  const StatusOr<const Job*> job = attempt_of(state, key);
  if (!job.ok()) return job.status();
  const RankIndex rank = rank_in_job(**job, key);
  return deadline_exceeded(
      "job {} attempt {}: rank {} on {} has not published {} for communicator {}; see its log",
      key.attempt.job, key.attempt.attempt, rank.value,
      (*job)->attempt->ranks[static_cast<size_t>(rank.value)].worker, key.item, key.communicator);
}

}  // namespace

void answer(Turn& turn, std::vector<Broker::Answer> answers) {
  for (Broker::Answer& one : answers) turn.emit(AnswerLookUp{one.reply, std::move(one.value)});
}

void on_publish(Turn& turn, Publish event) {
  Status status = may_publish(turn.state, event.key);
  if (!status.ok()) {
    turn.refuse(status.code() == StatusCode::kAborted ? Refusal::Stale : Refusal::Malformed);
    turn.emit(AnswerPublish{event.reply, std::move(status)});
    return;
  }
  Broker::Published published =
      turn.state.broker.publish(event.key, std::move(event.value), turn.state.options);
  turn.emit(AnswerPublish{event.reply, std::move(published.status)});
  answer(turn, std::move(published.answers));
}

void on_look_up(Turn& turn, const LookUp& event) {
  Status status = may_look_up(turn.state, event.key);
  if (!status.ok()) {
    turn.refuse(status.code() == StatusCode::kAborted ? Refusal::Stale : Refusal::Malformed);
    turn.emit(AnswerLookUp{event.reply, std::move(status)});
    return;
  }
  answer(turn, turn.state.broker.look_up(event.reply, event.key, event.deadline, turn.state.options));
}

void on_abandoned(Turn& turn, const LookUpAbandoned& event) {
  answer(turn, turn.state.broker.abandon(event.reply));
}

void answer_overdue(Turn& turn) {
  for (const Broker::Overdue& late : turn.state.broker.take_overdue(turn.now.time)) {
    turn.emit(AnswerLookUp{late.reply, overdue(turn.state, late.key)});
  }
}

}  // namespace penstock::coordinator
