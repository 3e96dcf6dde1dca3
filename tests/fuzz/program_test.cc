// Compute programs that no family generates: the verifier answers each, and what it accepts can be lowered,
// simulated order or not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "plan/interop/schedule_json.h"
#include "plan/schedule/action.h"
#include "plan/schedule/families.h"
#include "plan/schedule/lowered.h"
#include "plan/verification/verify.h"
#include "tests/fuzz/mutator.h"

namespace penstock::plan {
namespace {

std::vector<ComputeProgram> programs() {
  std::vector<ComputeProgram> programs;
  for (const ScheduleRequest& request :
       {ScheduleRequest{"naive", 2, 2, 1}, ScheduleRequest{"gpipe", 3, 4, 1},
        ScheduleRequest{"1f1b", 4, 6, 1}, ScheduleRequest{"interleaved-1f1b", 2, 5, 2},
        ScheduleRequest{"1f1b-v", 3, 3, 2}, ScheduleRequest{"zb-h1", 3, 4, 1},
        ScheduleRequest{"zb-v", 2, 3, 2}, ScheduleRequest{"dualpipe", 4, 8, 0}}) {
    StatusOr<ComputeProgram> program = generate(request);
    EXPECT_TRUE(program.ok()) << program.status();
    programs.push_back(*std::move(program));
  }
  return programs;
}

void expect_violations_that_say_something(const Verdict& verdict) {
  EXPECT_LE(verdict.violations.size(), 20u);
  for (const Violation& violation : verdict.violations) {
    EXPECT_FALSE(violation.rule.empty());
    EXPECT_FALSE(violation.message.empty());
  }
}

// Verification is the gate: whatever passes it must lower, and the lowered program must pass in turn.
void expect_a_verdict_that_holds(const ComputeProgram& program) {
  const Verdict verdict = verify(program);
  expect_violations_that_say_something(verdict);
  if (!verdict.valid()) return;
  const StatusOr<LoweredProgram> lowered = lower(program);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const Verdict second = verify(*lowered);
  EXPECT_TRUE(second.valid()) << second.violations.front().to_string();
  const StatusOr<LoweredProgram> queued = lower(program, {.posting = Posting::InQueueOrder});
  ASSERT_TRUE(queued.ok()) << queued.status();
  const Verdict strictest = verify(*queued, {.in_order_queue = true});
  EXPECT_TRUE(strictest.valid()) << strictest.violations.front().to_string();
}

void damage(ComputeProgram& program, fuzz::Mutator& mutator) {
  std::vector<Action>& actions = program.actions[mutator.below(program.actions.size())];
  if (actions.empty()) return;
  const size_t at = mutator.below(actions.size());
  Action& action = actions[at];
  switch (mutator.below(9)) {
    case 0:
      std::swap(action, actions[mutator.below(actions.size())]);
      return;
    case 1:
      if (at + 1 < actions.size()) std::swap(action, actions[at + 1]);
      return;
    case 2:
      actions.erase(actions.begin() + static_cast<ptrdiff_t>(at));
      return;
    case 3:
      actions.insert(actions.begin() + static_cast<ptrdiff_t>(mutator.below(actions.size())), Action(action));
      return;
    case 4:
      action.work.stage = StageIndex(mutator.number());
      return;
    case 5:
      action.work.microbatch = MicrobatchIndex(mutator.number());
      return;
    case 6:
      action.work.kind = static_cast<ActionKind>(mutator.below(4));
      return;
    case 7:
      action.overlapped = actions[mutator.below(actions.size())].work;
      return;
    default:
      break;
  }
  switch (mutator.below(5)) {
    case 0:
      program.placement[mutator.below(program.placement.size())] = {RankIndex(mutator.number())};
      return;
    case 1:
      program.microbatches += mutator.one_in(2) ? 1 : -1;
      return;
    case 2:
      program.forward_only = !program.forward_only;
      return;
    case 3:
      program.updates = static_cast<int>(mutator.below(3));
      return;
    default:
      program.version_rule = static_cast<WeightVersionRule>(mutator.below(3));
  }
}

TEST(FuzzProgram, every_damaged_program_gets_a_verdict_and_what_is_valid_can_be_lowered) {
  fuzz::Mutator mutator("compute programs");
  fuzz::Rounds rounds(4000);
  const std::vector<ComputeProgram> sound = programs();
  while (rounds.next() && !::testing::Test::HasFailure()) {
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()) + ", round " + std::to_string(rounds.done()));
    ComputeProgram program = sound[mutator.below(sound.size())];
    for (size_t pieces = 1 + mutator.below(2); pieces > 0; --pieces) damage(program, mutator);
    expect_a_verdict_that_holds(program);
  }
}

// As `penstock schedule -o json` writes it; only what `file:` reads.
std::string json_of(const ComputeProgram& program) {
  std::string actions;
  for (const std::vector<Action>& list : program.actions) {
    std::string words;
    for (const Action& action : list)
      words += fmt::format("{}\"{}\"", words.empty() ? "" : ", ", to_string(action));
    actions += fmt::format("{}[{}]", actions.empty() ? "" : ", ", words);
  }
  std::string placement;
  for (const std::vector<RankIndex>& ranks : program.placement) {
    placement += fmt::format("{}[{}]", placement.empty() ? "" : ", ", ranks[0].value);
  }
  return fmt::format(
      "{{\"ranks\": {}, \"microbatches\": {}, \"stages_per_rank\": {}, \"placement\": [{}], \"actions\": "
      "[{}]}}",
      program.ranks, program.microbatches, program.stages_per_rank, placement, actions);
}

TEST(FuzzProgram, every_damaged_file_gets_a_program_or_a_status) {
  fuzz::Mutator mutator("schedule files",
                        {"\"", "[", "]", "{", "}", ",", ":", "null", "1e99", "-1", "\"0F0\"", "O(0F1;1B0)",
                         "\"actions\"", "\"placement\"", "\\u0000", "99999999999"});
  fuzz::Rounds rounds(4000);
  std::vector<std::string> files;
  for (const ComputeProgram& program : programs()) {
    if (!program.has_replicas()) files.push_back(json_of(program));
  }
  int read = 0;
  while (rounds.next() && !::testing::Test::HasFailure()) {
    const std::string text = mutator.mutated(files[mutator.below(files.size())]);
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()) + ", text:\n" + text);
    const StatusOr<ComputeProgram> program = program_from_json(text, "x.json");
    if (!program.ok()) {
      EXPECT_FALSE(message(program.status()).empty());
      continue;
    }
    ++read;
    expect_a_verdict_that_holds(*program);
  }
  EXPECT_GT(read, rounds.done() / 50);
}

TEST(FuzzProgram, every_damaged_action_is_refused_or_reads_back_from_its_own_text) {
  fuzz::Mutator mutator("actions",
                        {"F", "B", "I", "W", "O(", ")", ";", "0", "12", "-1", "+", " ", "99999999999"});
  fuzz::Rounds rounds(20000);
  const std::vector<std::string> actions = {"0F1", "12B34", "0I1", "3W2", "O(4F7;3B2)"};
  while (rounds.next() && !::testing::Test::HasFailure()) {
    const std::string text = mutator.mutated(actions[mutator.below(actions.size())]);
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()) + ", text: " + text);
    const StatusOr<Action> action = parse_action(text);
    if (!action.ok()) continue;
    const StatusOr<Action> again = parse_action(to_string(*action));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, *action);
  }
}

}  // namespace
}  // namespace penstock::plan
