#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "tests/programs/checker.h"
#include "tests/programs/graph.h"
#include "tests/programs/rank_check.h"

namespace penstock::checking {
namespace {

using plan::LoweredProgram;

class WholeCheck {
 public:
  explicit WholeCheck(const LoweredProgram& program) : program_(program) {}

  Checked run() {
    Checked checked;
    checked.why = check_rules();
    if (!checked.why.empty()) return checked;
    number_nodes();
    checked.buffered = !waits(true, false, false).has_circle();
    checked.rendezvous = !waits(true, true, false).has_circle();
    checked.in_order_queue = !waits(false, false, true).has_circle();
    return checked;
  }

 private:
  using Ends = std::pair<int, int>;  // ranks: source, target
  struct Node {
    size_t node;
    Tensor tensor;
  };

  std::string check_rules() {
    if (program_.ranks.empty()) return "no ranks";
    const RankProgram& first = program_.ranks.front();
    if (first.stages < 1 || first.microbatches < 1 || first.updates < 1) return "shape";
    bool synchronous = true, double_buffered = true, stashed = true;
    std::set<bool> validates;
    for (size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      const RankProgram& p = program_.ranks[rank];
      const bool agrees = p.rank.value == static_cast<int>(rank) &&
                          p.ranks == static_cast<int>(program_.ranks.size()) && p.stages == first.stages &&
                          p.microbatches == first.microbatches && p.updates == first.updates &&
                          p.forward_only == first.forward_only;
      if (!agrees) return "ranks of different programs";
      RankCheck check(p);
      if (const std::string why = check.run(); !why.empty()) return fmt::format("rank {}: {}", rank, why);
      validates.insert(check.validation().has_value());
      synchronous = synchronous && check.follows_updates(false);
      double_buffered = double_buffered && check.follows_updates(true);
      stashed = stashed && check.follows_stash();
    }
    if (!synchronous && !double_buffered && !stashed) return "no staleness rule";
    if (validates.size() != 1) return "some ranks validate and some do not";
    if (!replicas_name_each_other()) return "replicas that do not name each other";
    if (!has_every_forward_once()) return "not every forward once";
    return links_agree() ? "" : "links whose ends disagree";
  }

  // Each stage: nobody else, or the one rank that says the same of this one and is the other replica.
  bool replicas_name_each_other() const {
    std::set<std::tuple<int, int, int, int>> said;  // stage, rank, twin, replica
    std::map<int, int> ranks_of;                    // [stage]
    for (const RankProgram& rank : program_.ranks) {
      for (const plan::StageBuffers& buffers : rank.buffers) {
        said.emplace(buffers.stage.value, rank.rank.value, buffers.twin.value, buffers.replica);
        ++ranks_of[buffers.stage.value];
      }
    }
    return std::all_of(said.begin(), said.end(), [&](const auto& one) {
      const auto [stage, rank, twin, replica] = one;
      if (twin == -1) return replica == 0 && ranks_of.at(stage) == 1;
      const bool is_first_or_second = replica == 0 || replica == 1;
      return is_first_or_second && twin != rank && ranks_of.at(stage) == 2 &&
             said.contains({stage, twin, rank, 1 - replica});
    });
  }

  bool has_every_forward_once() const {
    std::multiset<Work> forwards;
    for (const RankProgram& rank : program_.ranks) {
      for (const Instruction& at : rank.instructions) {
        const bool is_forward = at.kind == InstructionKind::Compute && at.work.kind == ActionKind::Forward;
        if (is_forward) forwards.insert(at.work);
      }
    }
    const RankProgram& first = program_.ranks.front();
    const std::set<Work> different(forwards.begin(), forwards.end());
    const int64_t expected = int64_t{first.stages} * first.microbatches * first.updates;
    return different.size() == forwards.size() && static_cast<int64_t>(different.size()) == expected &&
           different.rbegin()->stage.value < first.stages;
  }

  bool links_agree() const {
    std::map<Ends, std::vector<Tensor>> sent, posted;
    std::map<Ends, std::set<std::tuple<int, int, int, int>>> told;  // messages, slots, provisional messages
    for (const RankProgram& rank : program_.ranks) {
      const int self = rank.rank.value;
      for (const Instruction& at : rank.instructions) {
        if (at.kind == InstructionKind::Send) sent[{self, at.peer.value}].push_back(tensor_of(at));
        if (at.kind == InstructionKind::PostReceive) posted[{at.peer.value, self}].push_back(tensor_of(at));
      }
      for (const plan::Link& link : rank.links) {
        if (link.source == link.target) continue;
        told[{link.source.value, link.target.value}].emplace(link.messages, link.receive_slots,
                                                             link.send_slots, link.provisional_messages);
      }
    }
    for (const auto& [ends, of_link] : told) {
      const auto found = sent.find(ends);
      if (of_link.size() != 1 || found == sent.end()) return false;
      if (static_cast<size_t>(std::get<0>(*of_link.begin())) != found->second.size()) return false;
    }
    return sent == posted && sent.size() == told.size();
  }

  // Every instruction is a node, and every message one for its passing.
  void number_nodes() {
    for (const RankProgram& rank : program_.ranks) {
      first_node_.push_back(nodes_);
      nodes_ += rank.instructions.size();
    }
    for (const RankProgram& rank : program_.ranks) {
      for (const plan::StageBuffers& buffers : rank.buffers)
        holders_[buffers.stage.value].insert(rank.rank.value);
      for (const Instruction& at : rank.instructions) {
        if (at.kind == InstructionKind::Send)
          passes_.emplace(std::pair(Ends{rank.rank.value, at.peer.value}, tensor_of(at)), nodes_++);
      }
    }
  }

  // `by_post`: a wait for a send waits for the receive's post. `by_queue`: all waits are for the message's
  // passing, which waits for both posts and for what stands before it in both queues.
  Graph waits(bool by_send, bool by_post, bool by_queue) const {
    Graph graph(nodes_);
    for (const RankProgram& rank : program_.ranks) {
      const int self = rank.rank.value;
      std::optional<size_t> queued;
      for (size_t i = 0; i < rank.instructions.size(); ++i) {
        const Instruction& at = rank.instructions[i];
        const size_t node = first_node_[self] + i;
        if (i > 0) graph.add(node - 1, node);
        const bool receives =
            at.kind == InstructionKind::PostReceive || at.kind == InstructionKind::WaitReceive;
        const bool sends = at.kind == InstructionKind::Send || at.kind == InstructionKind::WaitSend;
        if (at.kind == InstructionKind::ReduceGradients) add_meeting(graph, at, self, node);
        if (at.kind == InstructionKind::ValidateStep && rank.rank.value + 1 < rank.ranks) {
          const auto next = RankCheck(program_.ranks[self + 1]).validation();
          graph.add(first_node_[self + 1] + static_cast<size_t>(*next), node);
        }
        if (!receives && !sends) continue;
        const Ends ends = receives ? Ends{at.peer.value, self} : Ends{self, at.peer.value};
        const size_t passing = passes_.at({ends, tensor_of(at)});
        const bool posts = at.kind == InstructionKind::Send || at.kind == InstructionKind::PostReceive;
        if (by_queue && posts) {
          graph.add(node, passing);
          if (queued) graph.add(*queued, passing);
          queued = passing;
        }
        if (by_queue && !posts) graph.add(passing, node);
        if (by_send && at.kind == InstructionKind::WaitReceive)
          graph.add(node_of(InstructionKind::Send, ends.first, ends, tensor_of(at)), node);
        if (by_post && at.kind == InstructionKind::WaitSend)
          graph.add(node_of(InstructionKind::PostReceive, ends.second, ends, tensor_of(at)), node);
      }
    }
    return graph;
  }

  size_t node_of(InstructionKind kind, int rank, const Ends& ends, const Tensor& tensor) const {
    const auto& list = program_.ranks[rank].instructions;
    const int peer = rank == ends.first ? ends.second : ends.first;
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind == kind && list[i].peer.value == peer && tensor_of(list[i]) == tensor)
        return first_node_[rank] + i;
    }
    return 0;  // links_agree
  }

  // A sum over replicas waits for what stands before it on every rank that holds the stage.
  void add_meeting(Graph& graph, const Instruction& sum, int rank, size_t node) const {
    for (const int other : holders_.at(sum.work.stage.value)) {
      if (other == rank) continue;
      const auto& list = program_.ranks[other].instructions;
      for (size_t i = 1; i < list.size(); ++i) {
        const bool is_it =
            list[i].kind == sum.kind && list[i].work.stage == sum.work.stage && list[i].update == sum.update;
        if (is_it) graph.add(first_node_[other] + i - 1, node);
      }
    }
  }

  const LoweredProgram& program_;
  size_t nodes_ = 0;
  std::vector<size_t> first_node_;  // [rank]
  std::map<std::pair<Ends, Tensor>, size_t> passes_;
  std::map<int, std::set<int>> holders_;  // [stage]
};

}  // namespace

Checked check(const LoweredProgram& program) {
  return WholeCheck(program).run();
}

}  // namespace penstock::checking
