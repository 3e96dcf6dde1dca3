#include "plan/schedule/families/timetable.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "plan/schedule/dataflow.h"

namespace penstock::plan::families {
namespace {

// Whether the activation goes at the end of `work`.
bool releases(const Work& work, bool has_weight_gradients) {
  return ends_backward(work.kind) || (work.kind == ActionKind::InputGradient && !has_weight_gradients);
}

bool has_weight_gradients(const Timetable& timetable) {
  const auto& first = timetable.front();
  return std::any_of(first.begin(), first.end(),
                     [](const TimedWork& timed) { return timed.work.kind == ActionKind::WeightGradient; });
}

// When the outputs of the V placement's stages are there; -1 is not yet.
class Ends {
 public:
  explicit Ends(const Timetable& timetable)
      : ranks_(static_cast<int>(timetable.size())), stages_(2 * ranks_) {
    for (const TimedWork& timed : timetable.front())
      microbatches_ = std::max(microbatches_, timed.work.microbatch.value + 1);
    ends_.assign(size_t{2} * stages_ * microbatches_, -1);
  }

  void set(const Work& work, int64_t end) {
    if (work.kind != ActionKind::WeightGradient) at(work.kind == ActionKind::Forward, work) = end;
  }

  // First slot in which the inputs of `work` are there, from its rank and others; -1 when it is not known.
  int64_t earliest(const Work& work) {
    if (work.kind == ActionKind::WeightGradient) return at(false, work);
    const auto input = incoming(work, stages_);
    if (input) return at(input->flow == Flow::Activation, Work{input->source, work.kind, work.microbatch});
    return work.kind == ActionKind::Forward ? 0 : at(true, work);
  }

  // The rank that waits for what `work` makes.
  std::optional<int> consumer(const Work& work) const {
    const auto output = outgoing(work, stages_);
    if (!output) return std::nullopt;
    return std::min(output->target.value, stages_ - 1 - output->target.value);
  }

 private:
  int64_t& at(bool is_forward, const Work& work) {
    const size_t flow = is_forward ? 0 : 1;
    return ends_[(flow * stages_ + work.stage.value) * microbatches_ + work.microbatch.value];
  }

  int ranks_;
  int stages_;
  int microbatches_ = 0;
  std::vector<int64_t> ends_;  // [forward or backward, stage, microbatch]
};

// What stands on one rank so far.
class PulledRank {
 public:
  PulledRank(size_t size, int may_hold, bool has_weight_gradients)
      : may_hold_(may_hold), has_weight_gradients_(has_weight_gradients) {
    placed_.reserve(size);
  }

  // Places `timed`, which may not start before `earliest`; returns its end.
  int64_t place(TimedWork timed, int64_t earliest) {
    const size_t position = find(timed, earliest);
    placed_.insert(placed_.begin() + static_cast<std::ptrdiff_t>(position), timed);
    if (timed.work.kind == ActionKind::Forward) ++held_;
    if (releases(timed.work, has_weight_gradients_)) --held_;
    return timed.end();
  }

  std::vector<TimedWork> take() { return std::move(placed_); }

 private:
  // Walks from the right over what is placed, as far as `timed` may move, and keeps the leftmost gap that it
  // fits into.
  size_t find(TimedWork& timed, int64_t earliest) const {
    const bool is_forward = timed.work.kind == ActionKind::Forward;
    size_t best = placed_.size();
    int64_t gap_end = timed.end(), passed_from = timed.start;
    int held = held_;
    for (size_t at = placed_.size();; --at) {
      const int64_t gap_start = std::max(at == 0 ? 0 : placed_[at - 1].end(), earliest);
      if (is_forward && gap_start < passed_from && held >= may_hold_) return best;
      if (gap_end - gap_start >= timed.slots && gap_start <= timed.start) {
        best = at;
        timed.start = gap_start;
      }
      if (at == 0 || placed_[at - 1].end() <= earliest) return best;
      const Work& passed = placed_[at - 1].work;
      if (releases(passed, has_weight_gradients_)) ++held;  // held while it runs, and before
      if (is_forward && held >= may_hold_) return best;
      if (passed.kind == ActionKind::Forward) --held;
      gap_end = passed_from = placed_[at - 1].start;
    }
  }

  std::vector<TimedWork> placed_;  // ascending
  int may_hold_;
  bool has_weight_gradients_;
  int held_ = 0;  // behind the last of them
};

}  // namespace

Timetable repeat_block(const BuildingBlock& block, int microbatches) {
  const int ranks = static_cast<int>(block.of_rank.size());
  const ActionKind backward = block.splits_backward ? ActionKind::InputGradient : ActionKind::Backward;
  const int backward_slots = block.splits_backward ? 1 : 2;
  Timetable timetable(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    const BlockOfRank& starts = block.of_rank[rank];
    const StageIndex low(rank), high(2 * ranks - 1 - rank);
    TimedWork next[] = {{{low, ActionKind::Forward, MicrobatchIndex(0)}, starts.forward_low, 1},
                        {{high, ActionKind::Forward, MicrobatchIndex(0)}, starts.forward_high, 1},
                        {{high, backward, MicrobatchIndex(0)}, starts.backward_high, backward_slots},
                        {{low, backward, MicrobatchIndex(0)}, starts.backward_low, backward_slots}};
    timetable[rank].reserve(size_t{4} * microbatches);
    for (int64_t left = int64_t{4} * microbatches; left > 0; --left) {
      TimedWork* first = nullptr;
      for (TimedWork& candidate : next) {
        if (candidate.work.microbatch.value == microbatches) continue;
        if (first == nullptr || candidate.start < first->start) first = &candidate;
      }
      timetable[rank].push_back(*first);
      first->start += kBlockPeriod;
      ++first->work.microbatch.value;
    }
  }
  return timetable;
}

void place_weight_gradients(Timetable& timetable) {
  for (auto& list : timetable) {
    std::vector<TimedWork> filled;
    filled.reserve(list.size() + list.size() / 2);
    std::deque<Work> waiting;
    const auto fill_until = [&](int64_t slot) {
      for (int64_t free = filled.empty() ? 0 : filled.back().end(); free < slot && !waiting.empty(); ++free) {
        filled.push_back({waiting.front(), free, 1});
        waiting.pop_front();
      }
    };
    for (const TimedWork& timed : list) {
      fill_until(timed.start);
      filled.push_back(timed);
      if (timed.work.kind == ActionKind::InputGradient)
        waiting.push_back({timed.work.stage, ActionKind::WeightGradient, timed.work.microbatch});
    }
    fill_until(INT64_MAX);
    list = std::move(filled);
  }
}

std::vector<int> most_held(const Timetable& timetable) {
  const bool until_weight_gradient = has_weight_gradients(timetable);
  std::vector<int> most;
  for (const auto& list : timetable) {
    int held = 0, most_of_rank = 0;
    for (const TimedWork& timed : list) {
      if (timed.work.kind == ActionKind::Forward) most_of_rank = std::max(most_of_rank, ++held);
      if (releases(timed.work, until_weight_gradient)) --held;
    }
    most.push_back(most_of_rank);
  }
  return most;
}

Timetable pull_left(const Timetable& timetable, const std::vector<int>& may_hold) {
  const int ranks = static_cast<int>(timetable.size());
  const bool until_weight_gradient = has_weight_gradients(timetable);
  Ends ends(timetable);
  std::vector<PulledRank> pulled;
  std::vector<size_t> next(ranks, 0);
  std::deque<int> ready;
  for (int rank = 0; rank < ranks; ++rank) {
    pulled.emplace_back(timetable[rank].size(), may_hold[rank], until_weight_gradient);
    ready.push_back(rank);
  }
  // Inputs start earlier in the timetable, so that in any order that respects them every rank comes to its
  // end.
  while (!ready.empty()) {
    const int rank = ready.front();
    ready.pop_front();
    for (; next[rank] < timetable[rank].size(); ++next[rank]) {
      const TimedWork& timed = timetable[rank][next[rank]];
      const int64_t earliest = ends.earliest(timed.work);
      if (earliest < 0) break;
      ends.set(timed.work, pulled[rank].place(timed, earliest));
      const auto consumer = ends.consumer(timed.work);
      if (consumer && *consumer != rank) ready.push_back(*consumer);
    }
  }
  Timetable result;
  for (PulledRank& rank : pulled) result.push_back(rank.take());
  return result;
}

std::vector<std::vector<Action>> actions_in_order(const Timetable& timetable) {
  std::vector<std::vector<Action>> actions;
  for (const auto& list : timetable) {
    auto& of_rank = actions.emplace_back();
    of_rank.reserve(list.size());
    for (const TimedWork& timed : list) of_rank.push_back({timed.work, std::nullopt});
  }
  return actions;
}

}  // namespace penstock::plan::families
