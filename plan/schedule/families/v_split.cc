#include "plan/schedule/families/v_split.h"

#include <deque>
#include <optional>

#include "plan/schedule/families/greedy_play.h"

namespace penstock::plan::families {
namespace {

// One rank's choice, slot after slot.
class RankOfV {
 public:
  // `order`: its forwards and input gradients. `high`: its stage on the way back.
  RankOfV(std::vector<Work> order, StageIndex high, int microbatches, int may_hold)
      : order_(std::move(order)), high_(high), microbatches_(microbatches), may_hold_(may_hold) {}

  std::optional<Work> choose(const GreedyPlay& play) {
    while (next_ < order_.size() && has_run_early(order_[next_])) ++next_;
    if (next_ < order_.size() && has_memory_for(order_[next_]) && play.can_run(order_[next_]))
      return run(order_[next_++]);
    if (!weight_gradients_.empty()) return run_weight_gradient();
    // The rank would idle: an input gradient of hi may come before its turn.
    const Work early{high_, ActionKind::InputGradient, MicrobatchIndex(high_input_gradients_)};
    if (high_input_gradients_ < microbatches_ && play.can_run(early)) return run(early);
    return std::nullopt;
  }

 private:
  bool is_high_input_gradient(const Work& work) const {
    return work.kind == ActionKind::InputGradient && work.stage == high_;
  }
  bool has_run_early(const Work& work) const {
    return is_high_input_gradient(work) && work.microbatch.value < high_input_gradients_;
  }
  bool has_memory_for(const Work& work) const {
    return work.kind != ActionKind::Forward || held_ < may_hold_;
  }

  Work run(const Work& work) {
    if (work.kind == ActionKind::Forward) {
      ++held_;
    } else {
      weight_gradients_.push_back({work.stage, ActionKind::WeightGradient, work.microbatch});
    }
    if (is_high_input_gradient(work)) ++high_input_gradients_;
    return work;
  }

  Work run_weight_gradient() {
    const Work oldest = weight_gradients_.front();
    weight_gradients_.pop_front();
    --held_;
    return oldest;
  }

  std::vector<Work> order_;
  size_t next_ = 0;
  StageIndex high_;
  int microbatches_;
  int may_hold_;
  int held_ = 0;                  // until W
  int high_input_gradients_ = 0;  // that have run
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
    ranks.emplace_back(without_weight_gradients(timetable[rank]), StageIndex(2 * request.ranks - 1 - rank),
                       request.microbatches, may_hold);
  }
  GreedyPlay play(program, {.forward = 1, .backward = 1});
  play.run([&](int rank) { return ranks[rank].choose(play); });
  return program;
}

}  // namespace penstock::plan::families
