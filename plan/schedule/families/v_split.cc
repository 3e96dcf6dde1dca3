#include "plan/schedule/families/v_split.h"

#include <deque>
#include <optional>

#include "plan/schedule/families/greedy_play.h"

namespace penstock::plan::families {
namespace {

// One rank's choice, slot after slot.
class RankOfV {
 public:
  RankOfV(std::vector<Work> order, StageIndex low, StageIndex high, int microbatches, int may_hold)
      : order_(std::move(order)), stages_{high, low}, microbatches_(microbatches), may_hold_(may_hold) {}

  std::optional<Work> choose(const GreedyPlay& play) {
    skip_what_has_run();
    if (next_ < order_.size() && is_allowed(order_[next_]) && play.can_run(order_[next_]))
      return run(order_[next_]);
    if (!weight_gradients_.empty()) return run(weight_gradients_.front());
    // The rank would idle: an input gradient may come before its turn.
    for (int half : {0, 1}) {
      const Work early{stages_[half], ActionKind::InputGradient, MicrobatchIndex(input_gradients_[half])};
      if (input_gradients_[half] < microbatches_ && play.can_run(early)) return run(early);
    }
    return std::nullopt;
  }

 private:
  int half_of(const Work& work) const { return work.stage == stages_[0] ? 0 : 1; }

  void skip_what_has_run() {
    while (next_ < order_.size() && order_[next_].kind == ActionKind::InputGradient &&
           order_[next_].microbatch.value < input_gradients_[half_of(order_[next_])])
      ++next_;
  }

  bool is_allowed(const Work& work) const { return work.kind != ActionKind::Forward || held_ < may_hold_; }

  Work run(const Work& work) {
    if (work.kind == ActionKind::Forward) {
      ++held_;
      ++next_;
    } else if (work.kind == ActionKind::InputGradient) {
      ++input_gradients_[half_of(work)];
      weight_gradients_.push_back({work.stage, ActionKind::WeightGradient, work.microbatch});
    } else {
      const Work oldest = weight_gradients_.front();
      weight_gradients_.pop_front();
      --held_;
      return oldest;
    }
    return work;
  }

  std::vector<Work> order_;  // forwards and input gradients
  size_t next_ = 0;
  StageIndex stages_[2];  // hi, lo: the end of the V first
  int microbatches_;
  int may_hold_;
  int held_ = 0;                 // until W
  int input_gradients_[2] = {};  // that have run, by half
  std::deque<Work> weight_gradients_;
};

std::vector<Work> without_weight_gradients(const std::vector<TimedWork>& list) {
  std::vector<Work> order;
  for (const TimedWork& timed : list)
    if (timed.work.kind != ActionKind::WeightGradient) order.push_back(timed.work);
  return order;
}

}  // namespace

ComputeProgram v_split_program(const ScheduleRequest& request, const BuildingBlock& block, int may_hold) {
  Timetable timetable = repeat_block(block, request.microbatches);
  place_weight_gradients(timetable);
  timetable = pull_left(timetable, std::vector<int>(request.ranks, may_hold));

  ComputeProgram program = v_program(request);
  std::vector<RankOfV> ranks;
  for (int rank = 0; rank < request.ranks; ++rank) {
    ranks.emplace_back(without_weight_gradients(timetable[rank]), StageIndex(rank),
                       StageIndex(2 * request.ranks - 1 - rank), request.microbatches, may_hold);
  }
  GreedyPlay play(program, {.forward = 1, .backward = 1});
  play.run([&](int rank) { return ranks[rank].choose(play); });
  return program;
}

}  // namespace penstock::plan::families
