#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "plan/schedule/dataflow.h"
#include "plan/verification/internal/joint_run.h"
#include "plan/verification/internal/rank_checker.h"
#include "plan/verification/internal/report.h"

namespace penstock::plan {
namespace {

using internal::JointRun;
using internal::Place;
using internal::RankFacts;
using internal::Report;
using internal::Sends;

class LoweredVerifier {
 public:
  LoweredVerifier(const LoweredProgram& program, const VerifyOptions& options)
      : program_(program), options_(options) {}

  Verdict run() {
    const bool is_sound = has_shape() && every_rank_is_valid() && twins_agree() && is_complete_once() &&
                          links_agree() && versions_agree() && all_or_none_validate();
    Verdict verdict;
    if (is_sound) verdict.holds = run_to_the_end();
    if (is_sound && report_.is_empty()) {
      verdict.bit_identical = accumulates_in_order();
      verdict.high_water = high_water();
      check_claim(verdict.bit_identical);
    }
    verdict.violations = report_.take();
    return verdict;
  }

 private:
  bool has_shape() {
    if (program_.ranks.empty()) report_.add("shape", Place{}, "the program has no ranks");
    for (size_t rank = 0; rank < program_.ranks.size() && !report_.is_full(); ++rank) {
      const RankProgram& first = program_.ranks.front();
      const RankProgram& p = program_.ranks[rank];
      const bool agrees = p.rank.value == static_cast<int>(rank) &&
                          p.ranks == static_cast<int>(program_.ranks.size()) && p.stages == first.stages &&
                          p.microbatches == first.microbatches && p.updates == first.updates &&
                          p.forward_only == first.forward_only;
      if (agrees) continue;
      report_.add("shape", Place{RankIndex(rank), -1, ""},
                  "says rank {} of {}, {} stages, {} microbatches, {} updates; expected rank {} of {} and "
                  "the rest as rank 0",
                  p.rank.value, p.ranks, p.stages, p.microbatches, p.updates, rank, program_.ranks.size());
    }
    return report_.is_empty();
  }

  bool every_rank_is_valid() {
    for (const RankProgram& rank : program_.ranks) {
      if (report_.is_full()) break;
      facts_.push_back(internal::RankChecker(rank, report_).run());
    }
    return report_.is_empty();
  }

  // A stage is on one rank, or on two that name each other as replica 0 and 1.
  bool twins_agree() {
    std::map<StageIndex, std::vector<std::pair<RankIndex, const StageBuffers*>>> holders;
    for (const RankProgram& rank : program_.ranks) {
      for (const StageBuffers& buffers : rank.buffers)
        holders[buffers.stage].emplace_back(rank.rank, &buffers);
    }
    for (const auto& [stage, held] : holders) {
      const auto& [rank, first] = held.front();
      const bool is_alone = held.size() == 1 && !first->twin.is_set();
      const bool are_twins = held.size() == 2 && first->twin == held[1].first &&
                             held[1].second->twin == rank && first->replica + held[1].second->replica == 1;
      if (is_alone || are_twins) continue;
      report_.add("ownership", Place{rank, -1, ""},
                  "stage {} is on {} ranks; expected one, or two that name each other as replica 0 and 1",
                  stage.value, held.size());
    }
    return report_.is_empty();
  }

  // Every rank has proved that each of its forwards has its backward;
  // here: each forward is on exactly one rank.
  bool is_complete_once() {
    struct Found {
      Work work;
      RankIndex rank;
      int position;
    };
    std::vector<Found> forwards;
    for (const RankProgram& rank : program_.ranks) {
      for (size_t position = 0; position < rank.instructions.size(); ++position) {
        const Instruction& instruction = rank.instructions[position];
        if (instruction.kind != InstructionKind::Compute || instruction.work.kind != ActionKind::Forward)
          continue;
        forwards.push_back({instruction.work, rank.rank, static_cast<int>(position)});
      }
    }
    std::stable_sort(forwards.begin(), forwards.end(),
                     [](const Found& a, const Found& b) { return a.work < b.work; });
    for (size_t i = 1; i < forwards.size(); ++i) {
      const Found& again = forwards[i];
      if (again.work != forwards[i - 1].work) continue;
      report_.add("complete", Place{again.rank, again.position, to_string(again.work)}, "is on rank {} too",
                  forwards[i - 1].rank.value);
    }
    const RankProgram& first = program_.ranks.front();
    const int64_t total = int64_t{first.microbatches} * first.updates;
    const auto found = static_cast<int64_t>(forwards.size());
    if (!report_.is_empty() || found == first.stages * total) return report_.is_empty();
    const auto expected_at = [&](int64_t index) {
      return Work{StageIndex(index / total), ActionKind::Forward, MicrobatchIndex(index % total)};
    };
    int64_t gap = 0;
    while (gap < found && forwards[gap].work == expected_at(gap)) ++gap;
    report_.add("complete", Place{{}, -1, to_string(expected_at(gap))},
                "is missing; expected {} forwards in all, found {}", first.stages * total, found);
    return false;
  }

  // One message of a link at one of its ends, and where the instruction stands.
  struct Message {
    Passage passage;
    int position;
  };
  struct LinkEnds {
    const Link* at_source = nullptr;
    const Link* at_target = nullptr;
    std::vector<Message> sent;
    std::vector<Message> received;
  };
  using Links = std::map<std::pair<RankIndex, RankIndex>, LinkEnds>;

  Links collect_links() const {
    Links links;
    for (const RankProgram& rank : program_.ranks) {
      for (const Link& link : rank.links) {
        if (link.source == link.target) continue;
        LinkEnds& ends = links[{link.source, link.target}];
        (link.source == rank.rank ? ends.at_source : ends.at_target) = &link;
      }
      for (size_t position = 0; position < rank.instructions.size(); ++position) {
        const Instruction& instruction = rank.instructions[position];
        const bool sends = instruction.kind == InstructionKind::Send;
        if (!sends && instruction.kind != InstructionKind::PostReceive) continue;
        const std::pair key(sends ? rank.rank : instruction.peer, sends ? instruction.peer : rank.rank);
        LinkEnds& ends = links[key];
        (sends ? ends.sent : ends.received).push_back({passage_of(instruction), static_cast<int>(position)});
      }
    }
    return links;
  }

  // Both ends of a link know the same messages in the same order, and the same slots.
  bool links_agree() {
    for (const auto& [key, ends] : collect_links()) {
      if (!messages_agree(key.first, key.second, ends)) continue;
      const Link& source = *ends.at_source;
      const Link& target = *ends.at_target;
      if (source.provisional_messages != target.provisional_messages) {
        report_.add("transfers", Place{key.second, -1, ""},
                    "link {} to {} has {} provisional messages at its source, {} at its target",
                    key.first.value, key.second.value, source.provisional_messages,
                    target.provisional_messages);
      }
      if (source.receive_slots == target.receive_slots && source.send_slots == target.send_slots) continue;
      report_.add("memory", Place{key.second, -1, ""},
                  "link {} to {} has {} receive and {} send slots at its source, {} and {} at its target",
                  key.first.value, key.second.value, source.receive_slots, source.send_slots,
                  target.receive_slots, target.send_slots);
    }
    return report_.is_empty();
  }

  bool messages_agree(RankIndex source, RankIndex target, const LinkEnds& ends) {
    for (size_t i = 0; i < std::min(ends.sent.size(), ends.received.size()); ++i) {
      const Message& sent = ends.sent[i];
      const Message& received = ends.received[i];
      if (sent.passage == received.passage) continue;
      const Instruction& post = program_.ranks[target.value].instructions[received.position];
      report_.add(
          "transfers", Place{target, received.position, to_string(post)},
          "is message {} of link {} to {}, where the source sends stage {} microbatch {} at position {}", i,
          source.value, target.value, sent.passage.source.value, sent.passage.microbatch.value,
          sent.position);
      return false;
    }
    if (ends.sent.size() == ends.received.size() && !ends.sent.empty()) return true;
    report_.add("transfers", Place{target, -1, ""}, "link {} to {}: {} messages are sent and {} received",
                source.value, target.value, ends.sent.size(), ends.received.size());
    return false;
  }

  bool versions_agree() {
    RankFacts all;
    for (const RankFacts& facts : facts_) {
      all.is_synchronous = all.is_synchronous && facts.is_synchronous;
      all.is_double_buffered = all.is_double_buffered && facts.is_double_buffered;
      all.is_stashed = all.is_stashed && facts.is_stashed;
    }
    if (all.is_synchronous || all.is_double_buffered || all.is_stashed) return true;
    report_.add("numerics", Place{}, "the ranks follow different staleness rules");
    return false;
  }

  bool all_or_none_validate() {
    for (size_t rank = 1; rank < facts_.size(); ++rank) {
      if (facts_[rank].is_post_validated == facts_[0].is_post_validated) continue;
      report_.add("numerics", Place{RankIndex(rank), -1, ""},
                  "{} the step before, unlike rank 0; all ranks do, or none",
                  facts_[rank].is_post_validated ? "validates" : "does not validate");
      return false;
    }
    return true;
  }

  // Tells the laxest behaviour under which the program stops, of those that are demanded.
  SendSemantics run_to_the_end() {
    SendSemantics holds;
    const auto run = [&](Sends sends, bool is_demanded) {
      JointRun joint(program_, sends);
      if (joint.reaches_the_end()) return true;
      if (is_demanded) report_.add(joint.describe());
      return false;
    };
    // Rendezvous sends wait for more than buffered ones: where they end, those do.
    holds.rendezvous = JointRun(program_, Sends::Rendezvous).reaches_the_end();
    holds.buffered = holds.rendezvous || run(Sends::Buffered, true);
    if (!holds.buffered) return holds;
    if (!holds.rendezvous) {
      run(Sends::Rendezvous, true);
      return holds;
    }
    holds.in_order_queue = run(Sends::InOrderQueue, options_.in_order_queue);
    return holds;
  }

  bool has_replicas() const {
    std::set<int> stages;
    for (const RankProgram& rank : program_.ranks) {
      for (const StageBuffers& buffers : rank.buffers) {
        if (!stages.insert(buffers.stage.value).second) return true;
      }
    }
    return false;
  }

  bool accumulates_in_order() const {
    return !has_replicas() && std::all_of(facts_.begin(), facts_.end(),
                                          [](const RankFacts& facts) { return facts.accumulates_in_order; });
  }

  std::vector<int> high_water() const {
    std::vector<int> of_stage(program_.ranks.front().stages, 0);
    for (size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      const auto& buffers = program_.ranks[rank].buffers;
      for (size_t local = 0; local < buffers.size(); ++local) {
        int& most = of_stage[buffers[local].stage.value];
        most = std::max(most, facts_[rank].high_water[local]);
      }
    }
    return of_stage;
  }

  void check_claim(bool is_bit_identical) {
    if (!program_.bit_identical || is_bit_identical) return;
    report_.add("numerics", Place{},
                "claims bit_identical, but gradients do not accumulate in microbatch order");
  }

  const LoweredProgram& program_;
  const VerifyOptions& options_;
  Report report_;
  std::vector<RankFacts> facts_;
};

}  // namespace

Verdict verify(const LoweredProgram& program, const VerifyOptions& options) {
  return LoweredVerifier(program, options).run();
}

}  // namespace penstock::plan
