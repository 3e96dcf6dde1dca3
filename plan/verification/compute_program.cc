#include <algorithm>
#include <deque>
#include <optional>

#include "plan/schedule/dataflow.h"
#include "plan/schedule/limits.h"
#include "plan/verification/internal/circle.h"
#include "plan/verification/internal/report.h"
#include "plan/verification/internal/weight_versions.h"

namespace penstock::plan {
namespace {

using internal::Place;
using internal::Report;

// Runs the rules in turn. Each may rely on what the ones before it have proved.
class ComputeVerifier {
 public:
  explicit ComputeVerifier(const ComputeProgram& program) : program_(program) {}

  Verdict run() {
    const bool is_complete = has_shape() && names_are_valid() && is_complete_once();
    Verdict verdict;
    if (is_complete) {
      if (order_holds() && runs_to_its_end()) {
        verdict.holds = {.buffered = true, .rendezvous = true, .in_order_queue = true};
        versions_hold();
      }
      verdict.bit_identical = accumulates_in_microbatch_order(program_);
      verdict.high_water = high_water_per_stage(program_);
    }
    verdict.violations = report_.take();
    return verdict;
  }

 private:
  // The parts that one stage has to do for one microbatch. A fused backward is two at once.
  enum Part : int { kForward = 0, kBackwardStart = 1, kBackwardEnd = 2, kParts = 3 };

  struct Producer {
    Work work;
    RankIndex rank;
    int position;
  };

  // --- shape: sizes and indices of the program as a whole.

  template <typename... Args>
  bool refuse_shape(fmt::format_string<Args...> format, Args&&... args) {
    report_.add("shape", Place{}, format, std::forward<Args>(args)...);
    return false;
  }

  bool has_shape() {
    const ComputeProgram& p = program_;
    if (p.ranks < 1 || p.ranks > limits::kRanks)
      return refuse_shape("expected 1 to {} ranks, found {}", limits::kRanks, p.ranks);
    if (p.microbatches < 1 || p.updates < 1 ||
        int64_t{p.microbatches} * p.updates > limits::kMicrobatchesInAll) {
      return refuse_shape(
          "expected at least 1 microbatch and 1 update, and at most {} microbatches in all, found {} x {}",
          limits::kMicrobatchesInAll, p.microbatches, p.updates);
    }
    if (p.forward_only && p.updates != 1)
      return refuse_shape("a forward-only program has 1 update, found {}", p.updates);
    if (p.stages_per_rank < 1 ||
        int64_t{p.stages_per_rank} * p.ranks != static_cast<int64_t>(p.placement.size())) {
      return refuse_shape("expected {} ranks x {} stages_per_rank stages in the placement, found {}", p.ranks,
                          p.stages_per_rank, p.placement.size());
    }
    if (static_cast<int64_t>(p.actions.size()) != p.ranks) {
      return refuse_shape("expected {} action lists, one per rank, found {}", p.ranks, p.actions.size());
    }
    int64_t count = 0;
    for (const auto& actions : p.actions) count += static_cast<int64_t>(actions.size());
    if (count > limits::kActions)
      return refuse_shape("expected at most {} actions, found {}", limits::kActions, count);
    return placement_is_valid() && routes_are_valid();
  }

  bool placement_is_valid() {
    std::vector<bool> has_stage(program_.ranks, false);
    for (int stage = 0; stage < program_.stages(); ++stage) {
      std::vector<RankIndex> replicas = program_.placement[stage];
      for (const RankIndex rank : replicas) {
        if (rank.value < 0 || rank.value >= program_.ranks) {
          return refuse_shape("stage {} is placed on rank {}, expected 0 to {}", stage, rank.value,
                              program_.ranks - 1);
        }
        has_stage[rank.value] = true;
      }
      std::sort(replicas.begin(), replicas.end());
      const bool is_twice = std::adjacent_find(replicas.begin(), replicas.end()) != replicas.end();
      if (replicas.empty() || is_twice || replicas.size() > 2) {
        return refuse_shape("stage {} is placed {}, expected one rank or two different ones", stage,
                            replicas.empty() ? "nowhere"
                            : is_twice       ? "twice on one rank"
                                             : "on more than two ranks");
      }
    }
    const auto idle = std::find(has_stage.begin(), has_stage.end(), false);
    if (idle == has_stage.end()) return true;
    return refuse_shape("rank {} holds no stage", idle - has_stage.begin());
  }

  bool routes_are_valid() {
    const auto& routes = program_.replica_of;
    if (routes.empty()) return true;
    if (static_cast<int64_t>(routes.size()) != program_.total_microbatches()) {
      return refuse_shape("replica_of names {} microbatches, expected {}", routes.size(),
                          program_.total_microbatches());
    }
    size_t replicas = program_.placement[0].size();
    for (const auto& ranks : program_.placement) replicas = std::min(replicas, ranks.size());
    for (size_t microbatch = 0; microbatch < routes.size(); ++microbatch) {
      const int route = routes[microbatch];
      if (route >= 0 && static_cast<size_t>(route) < replicas) continue;
      return refuse_shape("microbatch {} runs on replica {}, expected 0 to {}", microbatch, route,
                          replicas - 1);
    }
    return true;
  }

  // --- ownership: every piece of work names what exists, on the rank that holds it.

  template <typename Visit>
  void for_each_work(Visit&& visit) {
    for (int rank = 0; rank < program_.ranks; ++rank) {
      const auto& actions = program_.actions[rank];
      for (size_t position = 0; position < actions.size() && !report_.is_full(); ++position) {
        visit(actions[position].work, RankIndex(rank), static_cast<int>(position));
        if (actions[position].overlapped)
          visit(*actions[position].overlapped, RankIndex(rank), static_cast<int>(position));
      }
    }
  }

  static Place place(const Work& work, RankIndex rank, int position) {
    return Place{rank, position, to_string(work)};
  }

  bool names_are_valid() {
    for_each_work([&](const Work& work, RankIndex rank, int position) {
      if (work.kind > ActionKind::WeightGradient) {
        report_.add("shape", place(work, rank, position), "expected F, B, I or W, found kind {}",
                    static_cast<int>(work.kind));
      } else if (work.stage.value < 0 || work.stage.value >= program_.stages()) {
        report_.add("shape", place(work, rank, position), "expected a stage of 0 to {}",
                    program_.stages() - 1);
      } else if (work.microbatch.value < 0 || work.microbatch.value >= program_.total_microbatches()) {
        report_.add("shape", place(work, rank, position), "expected a microbatch of 0 to {}",
                    program_.total_microbatches() - 1);
      } else if (const RankIndex owner = program_.rank_of(work.stage, work.microbatch); owner != rank) {
        report_.add("ownership", place(work, rank, position),
                    "stage {} runs microbatch {} on rank {}, found it on rank {}", work.stage.value,
                    work.microbatch.value, owner.value, rank.value);
      } else if (program_.forward_only && work.kind != ActionKind::Forward) {
        report_.add("complete", place(work, rank, position), "a forward-only program has no backward");
      }
    });
    return report_.is_empty();
  }

  // --- complete: one F, and one B or one I and one W, of every stage and microbatch.

  size_t cell(StageIndex stage, MicrobatchIndex microbatch) const {
    return static_cast<size_t>(stage.value) * program_.total_microbatches() + microbatch.value;
  }
  int& position_of(Part part, StageIndex stage, MicrobatchIndex microbatch) {
    return positions_[part * cells_ + cell(stage, microbatch)];
  }

  bool is_complete_once() {
    const int64_t cells = int64_t{program_.stages()} * program_.total_microbatches();
    int64_t forwards = 0;
    for_each_work(
        [&](const Work& work, RankIndex, int) { forwards += work.kind == ActionKind::Forward ? 1 : 0; });
    if (forwards < cells) return name_first_missing_forward(forwards, cells);
    cells_ = static_cast<size_t>(cells);
    positions_.assign(kParts * cells_, -1);
    split_.assign(cells_, false);
    for_each_work([&](const Work& work, RankIndex rank, int position) { note(work, rank, position); });
    if (report_.is_empty()) name_missing_backwards();
    return report_.is_empty();
  }

  // Without an array of all cells, which a small file could ask to be huge.
  bool name_first_missing_forward(int64_t forwards, int64_t cells) {
    std::vector<size_t> present;
    for_each_work([&](const Work& work, RankIndex, int) {
      if (work.kind == ActionKind::Forward) present.push_back(cell(work.stage, work.microbatch));
    });
    std::sort(present.begin(), present.end());
    present.erase(std::unique(present.begin(), present.end()), present.end());
    size_t gap = 0;
    while (gap < present.size() && present[gap] == gap) ++gap;
    const auto total = static_cast<size_t>(program_.total_microbatches());
    const Work missing{StageIndex(gap / total), ActionKind::Forward, MicrobatchIndex(gap % total)};
    report_.add("complete",
                Place{program_.rank_of(missing.stage, missing.microbatch), -1, to_string(missing)},
                "is missing; expected {} forwards in all, found {}", cells, forwards);
    return false;
  }

  void note(const Work& work, RankIndex rank, int position) {
    const auto claim = [&](Part part) {
      int& known = position_of(part, work.stage, work.microbatch);
      if (known >= 0) {
        report_.add("complete", place(work, rank, position),
                    "is there twice: {} at position {} does the same",
                    to_string(program_.actions[rank.value][known]), known);
      }
      known = position;
    };
    if (work.kind == ActionKind::Forward) return claim(kForward);
    if (work.kind == ActionKind::InputGradient) split_[cell(work.stage, work.microbatch)] = true;
    if (starts_backward(work.kind)) claim(kBackwardStart);
    if (ends_backward(work.kind)) claim(kBackwardEnd);
  }

  void name_missing_backwards() {
    for (int stage = 0; stage < program_.stages() && !program_.forward_only; ++stage) {
      for (int microbatch = 0; microbatch < program_.total_microbatches() && !report_.is_full();
           ++microbatch) {
        const StageIndex s(stage);
        const MicrobatchIndex i(microbatch);
        const bool has_start = position_of(kBackwardStart, s, i) >= 0;
        const bool has_end = position_of(kBackwardEnd, s, i) >= 0;
        if (has_start && has_end) continue;
        const ActionKind kind = has_start ? ActionKind::WeightGradient
                                : has_end ? ActionKind::InputGradient
                                          : ActionKind::Backward;
        report_.add("complete", Place{program_.rank_of(s, i), -1, to_string(Work{s, kind, i})},
                    "is missing; every forward needs one B, or one I and one W");
      }
    }
  }

  // --- order: what a rank needs from itself stands before.

  std::optional<Producer> producer_of_input(const Work& work) {
    const auto passage = incoming(work, program_.stages());
    if (!passage) return std::nullopt;
    const Part part = passage->flow == Flow::Activation ? kForward : kBackwardStart;
    return producer(part, passage->source, passage->microbatch);
  }

  Producer producer(Part part, StageIndex stage, MicrobatchIndex microbatch) {
    ActionKind kind = ActionKind::Forward;
    if (part != kForward)
      kind = split_[cell(stage, microbatch)] ? ActionKind::InputGradient : ActionKind::Backward;
    return {Work{stage, kind, microbatch}, program_.rank_of(stage, microbatch),
            position_of(part, stage, microbatch)};
  }

  bool order_holds() {
    const auto require = [&](const Work& work, RankIndex rank, int position, const Producer& first) {
      if (first.rank != rank || first.position < position) return;
      if (first.position == position) {
        report_.add("order", place(work, rank, position), "needs {}, which runs in the same pair",
                    to_string(first.work));
      } else {
        report_.add("order", place(work, rank, position), "needs {} first, which stands at position {}",
                    to_string(first.work), first.position);
      }
    };
    for_each_work([&](const Work& work, RankIndex rank, int position) {
      if (const auto input = producer_of_input(work)) require(work, rank, position, *input);
      if (starts_backward(work.kind))
        require(work, rank, position, producer(kForward, work.stage, work.microbatch));
      if (work.kind == ActionKind::WeightGradient) {
        require(work, rank, position, producer(kBackwardStart, work.stage, work.microbatch));
      }
    });
    return report_.is_empty();
  }

  // --- deadlock: runs the lists as far as they go.

  bool has_run(const Producer& needed) const { return needed.position < next_[needed.rank.value]; }

  // The first input of the rank's next action that nobody has made yet.
  std::optional<Producer> missing_input(int rank) {
    const Action& action = program_.actions[rank][next_[rank]];
    if (const auto input = producer_of_input(action.work); input && !has_run(*input)) return input;
    if (!action.overlapped) return std::nullopt;
    if (const auto input = producer_of_input(*action.overlapped); input && !has_run(*input)) return input;
    return std::nullopt;
  }

  void wake_consumer(const Work& work) {
    const auto passage = outgoing(work, program_.stages());
    if (passage) ready_.push_back(program_.rank_of(passage->target, passage->microbatch).value);
  }

  bool runs_to_its_end() {
    next_.assign(program_.ranks, 0);
    for (int rank = 0; rank < program_.ranks; ++rank) ready_.push_back(rank);
    while (!ready_.empty()) {
      const int rank = ready_.front();
      ready_.pop_front();
      const auto& actions = program_.actions[rank];
      while (next_[rank] < static_cast<int>(actions.size()) && !missing_input(rank)) {
        const Action& action = actions[next_[rank]++];
        wake_consumer(action.work);
        if (action.overlapped) wake_consumer(*action.overlapped);
      }
    }
    std::vector<int> waits_for(program_.ranks, -1);
    bool ended = true;
    for (int rank = 0; rank < program_.ranks; ++rank) {
      if (next_[rank] == static_cast<int>(program_.actions[rank].size())) continue;
      waits_for[rank] = missing_input(rank)->rank.value;
      ended = false;
    }
    if (ended) return true;
    report_.add(internal::describe_circle(waits_for, "", [&](int rank) {
      const Producer needed = *missing_input(rank);
      return internal::Standstill{next_[rank], to_string(program_.actions[rank][next_[rank]]),
                                  fmt::format("{} of rank {} (position {})", to_string(needed.work),
                                              needed.rank.value, needed.position)};
    }));
    return false;
  }

  // --- numerics: every piece of work finds the weights that the program's rule gives it.

  void versions_hold() {
    if (program_.forward_only) return;
    if (program_.has_replicas() && program_.version_rule != WeightVersionRule::Synchronous) {
      report_.add("numerics", Place{},
                  "replicas of a stage meet at every update, which an asynchronous rule does not allow");
      return;
    }
    for (int rank = 0; rank < program_.ranks; ++rank) {
      std::vector<int> backwards_left(program_.updates, 0);
      for (const Action& action : program_.actions[rank]) {
        count_backward(action.work, +1, backwards_left);
        if (action.overlapped) count_backward(*action.overlapped, +1, backwards_left);
      }
      check_versions(RankIndex(rank), backwards_left);
    }
  }

  void count_backward(const Work& work, int by, std::vector<int>& left) const {
    if (ends_backward(work.kind)) left[work.microbatch.value / program_.microbatches] += by;
  }

  void check_versions(RankIndex rank, std::vector<int>& backwards_left) {
    int steps = 0;
    const auto pass_finished_updates = [&] {
      while (steps < program_.updates && backwards_left[steps] == 0) ++steps;
    };
    const auto check = [&](const Work& work, int position) {
      const int update = work.microbatch.value / program_.microbatches;
      if (internal::weights_exist(program_.version_rule, update, steps)) return;
      report_.add("numerics", place(work, rank, position),
                  "belongs to update {}, but the rank stands after {} optimizer steps: its weights of "
                  "version {} do not exist",
                  update, steps, internal::version_by_update(program_.version_rule, update));
    };
    const auto& actions = program_.actions[rank.value];
    pass_finished_updates();
    for (size_t position = 0; position < actions.size(); ++position) {
      const Action& action = actions[position];
      check(action.work, static_cast<int>(position));
      if (action.overlapped) check(*action.overlapped, static_cast<int>(position));
      count_backward(action.work, -1, backwards_left);
      if (action.overlapped) count_backward(*action.overlapped, -1, backwards_left);
      pass_finished_updates();
    }
  }

  const ComputeProgram& program_;
  Report report_;
  size_t cells_ = 0;
  std::vector<int> positions_;  // [part, stage, microbatch]
  std::vector<bool> split_;     // [stage, microbatch]: backward in two parts
  std::vector<int> next_;       // [rank]: actions that have run
  std::deque<int> ready_;
};

}  // namespace

Verdict verify(const ComputeProgram& program) {
  return ComputeVerifier(program).run();
}

}  // namespace penstock::plan
