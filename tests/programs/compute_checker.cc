#include <map>
#include <optional>
#include <set>

#include "plan/schedule/limits.h"
#include "tests/programs/checker.h"
#include "tests/programs/graph.h"

namespace penstock::checking {
namespace {

using plan::ActionKind;
using plan::ComputeProgram;
using plan::Work;

std::string check_shape(const ComputeProgram& p) {
  namespace limits = plan::limits;
  const int64_t total = int64_t{p.microbatches} * p.updates;
  if (p.ranks < 1 || p.ranks > limits::kRanks) return "ranks";
  if (p.microbatches < 1 || p.updates < 1 || total > limits::kMicrobatchesInAll) return "microbatches";
  if (p.forward_only && p.updates > 1) return "updates of a forward-only program";
  if (p.stages_per_rank < 1 ||
      int64_t{p.stages_per_rank} * p.ranks != static_cast<int64_t>(p.placement.size()))
    return "stages";
  if (p.actions.size() != static_cast<size_t>(p.ranks)) return "action lists";
  std::set<int> used;
  size_t replicas = SIZE_MAX;
  for (const auto& of_stage : p.placement) {
    std::set<int> ranks;
    for (const RankIndex rank : of_stage) ranks.insert(rank.value);
    if (ranks.empty() || ranks.size() > 2 || ranks.size() < of_stage.size()) return "placement";
    used.insert(ranks.begin(), ranks.end());
    replicas = std::min(replicas, ranks.size());
  }
  if (*used.begin() != 0 || *used.rbegin() != p.ranks - 1 || used.size() != static_cast<size_t>(p.ranks))
    return "placement";
  if (p.replica_of.empty()) return "";
  if (static_cast<int64_t>(p.replica_of.size()) != total) return "routes";
  for (const int route : p.replica_of) {
    if (route < 0 || static_cast<size_t>(route) >= replicas) return "routes";
  }
  return "";
}

class ComputeChecker {
 public:
  explicit ComputeChecker(const ComputeProgram& program) : program_(program) {}

  std::string run() {
    if (std::string why = check_shape(program_); !why.empty()) return why;
    if (std::string why = collect(); !why.empty()) return why;
    if (!is_what_is_expected()) return "not every forward once with one backward";
    if (!is_free_of_circles()) return "waits in a circle";
    return versions_exist() ? "" : "weights of another version";
  }

 private:
  struct Place {
    int rank;
    size_t position;
  };

  std::string collect() {
    const int total = program_.microbatches * program_.updates;
    for (int rank = 0; rank < program_.ranks; ++rank) {
      for (size_t position = 0; position < program_.actions[rank].size(); ++position) {
        const plan::Action& action = program_.actions[rank][position];
        for (const std::optional<Work>& work : {std::optional(action.work), action.overlapped}) {
          if (!work) continue;
          const bool exists = work->stage.value >= 0 && work->stage.value < program_.stages() &&
                              work->microbatch.value >= 0 && work->microbatch.value < total &&
                              work->kind <= ActionKind::WeightGradient;
          if (!exists || program_.rank_of(work->stage, work->microbatch).value != rank) return "foreign work";
          if (!places_.emplace(*work, Place{rank, position}).second) return "work twice";
        }
      }
    }
    return "";
  }

  bool has(int stage, ActionKind kind, int microbatch) const {
    return places_.contains({StageIndex(stage), kind, MicrobatchIndex(microbatch)});
  }

  bool is_what_is_expected() const {
    size_t expected = 0;
    const int64_t cells = int64_t{program_.stages()} * program_.microbatches * program_.updates;
    if (cells > static_cast<int64_t>(places_.size())) return false;
    for (int stage = 0; stage < program_.stages(); ++stage) {
      for (int i = 0; i < program_.microbatches * program_.updates; ++i) {
        if (!has(stage, ActionKind::Forward, i)) return false;
        ++expected;
        if (program_.forward_only) continue;
        const bool is_fused = has(stage, ActionKind::Backward, i);
        if (!is_fused &&
            !(has(stage, ActionKind::InputGradient, i) && has(stage, ActionKind::WeightGradient, i)))
          return false;
        expected += is_fused ? 1 : 2;
      }
    }
    return expected == places_.size();  // nothing else
  }

  // The part of the backward that the stage before waits for.
  Work backward(int stage, MicrobatchIndex microbatch) const {
    const Work fused{StageIndex(stage), ActionKind::Backward, microbatch};
    return places_.contains(fused) ? fused : Work{StageIndex(stage), ActionKind::InputGradient, microbatch};
  }

  std::vector<Work> needs_of(const Work& work) const {
    const int stage = work.stage.value;
    std::vector<Work> needs;
    if (work.kind == ActionKind::WeightGradient) return {backward(stage, work.microbatch)};
    if (work.kind == ActionKind::Forward) {
      if (stage > 0) needs.push_back({StageIndex(stage - 1), ActionKind::Forward, work.microbatch});
      return needs;
    }
    needs.push_back({work.stage, ActionKind::Forward, work.microbatch});
    if (stage + 1 < program_.stages()) needs.push_back(backward(stage + 1, work.microbatch));
    return needs;
  }

  bool is_free_of_circles() const {
    std::vector<size_t> first;
    size_t nodes = 0;
    for (const auto& actions : program_.actions) {
      first.push_back(nodes);
      nodes += actions.size();
    }
    Graph graph(nodes);
    for (size_t rank = 0; rank < first.size(); ++rank) {
      for (size_t position = 1; position < program_.actions[rank].size(); ++position)
        graph.add(first[rank] + position - 1, first[rank] + position);
    }
    for (const auto& [work, place] : places_) {
      for (const Work& need : needs_of(work)) {
        const Place& of_need = places_.at(need);
        graph.add(first[of_need.rank] + of_need.position, first[place.rank] + place.position);
      }
    }
    return !graph.has_circle();  // halves of a pair that need each other are one
  }

  // Optimizer steps that a rank has made before it runs `position`.
  int steps_before(int rank, size_t position) const {
    for (int update = 0; update < program_.updates; ++update) {
      for (const auto& [work, place] : places_) {
        const bool ends = work.kind == ActionKind::Backward || work.kind == ActionKind::WeightGradient;
        const bool is_of_update = work.microbatch.value / program_.microbatches == update;
        if (place.rank == rank && ends && is_of_update && place.position >= position) return update;
      }
    }
    return program_.updates;
  }

  bool versions_exist() const {
    if (program_.forward_only || program_.version_rule == plan::WeightVersionRule::Stashed) {
      return program_.forward_only || !program_.has_replicas();
    }
    const bool is_synchronous = program_.version_rule == plan::WeightVersionRule::Synchronous;
    if (!is_synchronous && program_.has_replicas()) return false;
    for (const auto& [work, place] : places_) {
      const int update = work.microbatch.value / program_.microbatches;
      const int steps = steps_before(place.rank, place.position);
      const int wanted = is_synchronous ? update : std::max(update - 1, 0);
      if (steps != wanted && (is_synchronous || steps != wanted + 1)) return false;
    }
    return true;
  }

  const ComputeProgram& program_;
  std::map<Work, Place> places_;
};

}  // namespace

std::string check(const ComputeProgram& program) {
  return ComputeChecker(program).run();
}

}  // namespace penstock::checking
