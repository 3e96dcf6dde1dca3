// Frames that no executor or daemon of ours would write: decoding answers each with a value that encodes
// again or with a status, and the check on arrival of a rank's program answers whatever decodes.
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/verification/verify.h"
#include "proto/codec/codec.h"
#include "proto/codec/limits.h"
#include "tests/fuzz/mutator.h"

namespace penstock::codec {
namespace {

AttemptKey attempt() {
  return {"quickstart", 1, 7};
}

plan::RankProgram rank_program(const char* schedule, int stages_per_rank) {
  const StatusOr<plan::ComputeProgram> computed = plan::generate({schedule, 2, 4, stages_per_rank});
  EXPECT_TRUE(computed.ok()) << computed.status();
  const StatusOr<plan::LoweredProgram> lowered = plan::lower(*computed);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return lowered->ranks[1];
}

Assignment assignment(plan::RankProgram program) {
  Assignment assignment;
  assignment.attempt = attempt();
  assignment.rank = program.rank;
  assignment.spec_yaml = "name: quickstart\n";
  // As many as the program says, so that its own numbers are what the decoder judges; it allows no more than
  // these.
  const auto count = [](int32_t number, int32_t most) {
    return static_cast<size_t>(std::clamp(number, 0, most));
  };
  assignment.split.assign(count(program.stages, kMostStages), {{plan::ItemKind::Block, LayerIndex(0)}});
  assignment.rank_hosts.assign(count(program.ranks, kMostRanks), "host");
  assignment.program = std::move(program);
  return assignment;
}

std::vector<std::string> executor_frames() {
  const CommunicatorKey key{attempt(), "pipeline", RankIndex(1), "address"};
  StepReport report;
  report.attempt = attempt();
  report.rank = RankIndex(1);
  report.loss = 5.5;
  report.stages = {{StageIndex(1), 0.01, 0.02, 0, 0, 4, 3}};
  report.memory = {{"activations", 1 << 20}};
  report.payloads = {{StageIndex(1), LayerIndex(2), "inputs", 3, 1, 2, 0.5}};
  StepTrace trace;
  trace.attempt = attempt();
  trace.rank = RankIndex(1);
  trace.clock = "boot";
  trace.works = {{{StageIndex(1), plan::ActionKind::Backward, MicrobatchIndex(2)}, 10, 20, 9}};
  trace.waits = {{StageIndex(1), plan::Flow::Gradient, MicrobatchIndex(2), 5, 10}};
  trace.layers = {{StageIndex(1), plan::LayerType::Head, 3, 4}};
  const std::vector<ExecutorFrame> frames = {RankReady{attempt(), RankIndex(1), 77, "avx512"},
                                             report,
                                             trace,
                                             RankFinished{attempt(), RankIndex(1), {{3, {1, 2, 3}}}},
                                             RankFailed{attempt(), RankIndex(1), 12, "out of memory", 1, 0},
                                             BrokerPublish{5, key, "127.0.0.1:1234"},
                                             BrokerLookUp{6, key, 30000},
                                             LogBatch{attempt(), RankIndex(1), {"hello", "world"}, 0}};
  std::vector<std::string> encoded;
  for (const ExecutorFrame& frame : frames) encoded.push_back(encode(frame));
  return encoded;
}

std::vector<std::string> daemon_frames() {
  return {
      encode(DaemonFrame(ExecutorAssignment{assignment(rank_program("1f1b", 1)), "127.0.0.1", "worker-1"})),
      encode(DaemonFrame(
          ExecutorAssignment{assignment(rank_program("interleaved-1f1b", 2)), "127.0.0.1", "worker-1"})),
      encode(DaemonFrame(BrokerReply{6, unavailable("gone"), ""}))};
}

template <typename Frame>
void expect_a_status_or_a_value_that_encodes_again(const std::string& bytes,
                                                   StatusOr<Frame> (*decode)(const std::string&)) {
  const StatusOr<Frame> frame = decode(bytes);
  if (!frame.ok()) {
    EXPECT_EQ(frame.status().code(), StatusCode::kInvalidArgument);
    EXPECT_FALSE(message(frame.status()).empty());
    return;
  }
  const std::string again = encode(*frame);
  const StatusOr<Frame> decoded = decode(again);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(encode(*decoded), again);
}

class FuzzWire : public ::testing::Test {
 protected:
  // protobuf logs every string that is no UTF-8; here that is most of them.
  google::protobuf::LogSilencer silence_;
};

TEST_F(FuzzWire, executor_frames_get_a_value_or_a_status) {
  fuzz::Mutator mutator("executor frames");
  fuzz::Rounds rounds(20000);
  const std::vector<std::string> frames = executor_frames();
  while (rounds.next() && !HasFailure()) {
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()) + ", round " + std::to_string(rounds.done()));
    expect_a_status_or_a_value_that_encodes_again<ExecutorFrame>(
        mutator.mutated(frames[mutator.below(frames.size())]), decode_executor_frame);
  }
}

TEST_F(FuzzWire, daemon_frames_get_a_value_or_a_status) {
  fuzz::Mutator mutator("daemon frames");
  fuzz::Rounds rounds(10000);
  const std::vector<std::string> frames = daemon_frames();
  while (rounds.next() && !HasFailure()) {
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()) + ", round " + std::to_string(rounds.done()));
    expect_a_status_or_a_value_that_encodes_again<DaemonFrame>(
        mutator.mutated(frames[mutator.below(frames.size())]), decode_daemon_frame);
  }
}

// Other numbers in well-formed places: what reaches the checks behind the decoder.
void change_somewhere(plan::RankProgram& program, fuzz::Mutator& mutator) {
  const auto number = [&] { return static_cast<int32_t>(mutator.number()); };
  if (!program.instructions.empty() && !mutator.one_in(4)) {
    const size_t at = mutator.below(program.instructions.size());
    plan::Instruction& instruction = program.instructions[at];
    const std::vector<std::function<void()>> changes = {
        [&] { instruction.kind = static_cast<plan::InstructionKind>(mutator.below(11)); },
        [&] { instruction.work.stage = StageIndex(number()); },
        [&] { instruction.work.kind = static_cast<plan::ActionKind>(mutator.below(5)); },
        [&] { instruction.work.microbatch = MicrobatchIndex(number()); },
        [&] { instruction.flow = static_cast<plan::Flow>(mutator.below(3)); },
        [&] { instruction.peer = RankIndex(number()); },
        [&] { instruction.slot = number(); },
        [&] { instruction.weight_version = number(); },
        [&] { instruction.update = number(); },
        [&] { instruction.overlaps_next = !instruction.overlaps_next; },
        [&] { std::swap(instruction, program.instructions[mutator.below(program.instructions.size())]); },
        [&] { program.instructions.push_back(instruction); },
        [&] { program.instructions.erase(program.instructions.begin() + static_cast<ptrdiff_t>(at)); }};
    changes[mutator.below(changes.size())]();
    return;
  }
  const std::vector<std::function<void()>> changes = {[&] { program.rank = RankIndex(number()); },
                                                      [&] { program.ranks = number(); },
                                                      [&] { program.stages = number(); },
                                                      [&] { program.microbatches = number(); },
                                                      [&] { program.updates = number(); },
                                                      [&] { program.forward_only = !program.forward_only; },
                                                      [&] {
                                                        if (!program.buffers.empty())
                                                          program.buffers[0].activation_slots = number();
                                                      },
                                                      [&] {
                                                        if (!program.buffers.empty())
                                                          program.buffers[0].stage = StageIndex(number());
                                                      },
                                                      [&] {
                                                        if (!program.links.empty())
                                                          program.links[0].source = RankIndex(number());
                                                      },
                                                      [&] {
                                                        if (!program.links.empty())
                                                          program.links[0].receive_slots = number();
                                                      },
                                                      [&] {
                                                        if (!program.links.empty())
                                                          program.links.push_back(program.links[0]);
                                                      },
                                                      [&] { program.links.clear(); },
                                                      [&] { program.buffers.clear(); }};
  changes[mutator.below(changes.size())]();
}

TEST_F(FuzzWire, a_rank_program_is_refused_by_the_decoder_or_judged_by_the_verifier) {
  fuzz::Mutator mutator("rank programs");
  fuzz::Rounds rounds(3000);
  const std::vector<plan::RankProgram> programs = {rank_program("1f1b", 1),
                                                   rank_program("interleaved-1f1b", 2)};
  int arrived = 0;
  while (rounds.next() && !HasFailure()) {
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()) + ", round " + std::to_string(rounds.done()));
    plan::RankProgram program = programs[mutator.below(programs.size())];
    for (size_t changes = 1 + mutator.below(3); changes > 0; --changes) change_somewhere(program, mutator);
    const StatusOr<DaemonFrame> frame = decode_daemon_frame(
        encode(DaemonFrame(ExecutorAssignment{assignment(program), "127.0.0.1", "worker-1"})));
    if (!frame.ok()) continue;
    ++arrived;
    for (const plan::Violation& violation :
         plan::verify(std::get<ExecutorAssignment>(*frame).assignment.program).violations) {
      EXPECT_FALSE(violation.rule.empty());
      EXPECT_FALSE(violation.to_string().empty());
    }
  }
  EXPECT_GT(arrived, rounds.done() / 20);
}

}  // namespace
}  // namespace penstock::codec
