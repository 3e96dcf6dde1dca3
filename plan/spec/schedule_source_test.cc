#include "plan/spec/schedule_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

// A job of two ranks and two microbatches with this parallel section.
std::string job(const std::string& parallel) {
  return "name: brought\n"
         "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 8,\n"
         "  max_position_embeddings: 8}\n"
         "data: {source: /text.txt, tokenizer: bytes, sequence_length: 8}\n"
         "train: {steps: 1, global_batch_size: 2, microbatch_size: 1}\n"
         "parallel: " +
         parallel + "\n";
}

ComputeProgram swapped_backwards() {
  ComputeProgram program =
      generate({.name = "gpipe", .ranks = 2, .microbatches = 2, .stages_per_rank = 1}).value();
  for (auto& actions : program.actions) std::swap(actions[2], actions[3]);
  return program;
}

std::string refusal(const std::string& parallel) {
  const StatusOr<JobSpec> spec = parse_job_spec(job(parallel));
  EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument) << parallel;
  return message(spec.status());
}

TEST(ScheduleSource, a_file_s_program_travels_in_the_text) {
  for (const std::string parallel :
       {"{pipeline: 2, schedule: file:mine.csv}", "\n  pipeline: 2\n  schedule: 'file:mine.csv'"}) {
    ASSERT_EQ(schedule_source(job(parallel)).value(), "mine.csv");
    const std::string text = with_schedule_program(job(parallel), swapped_backwards()).value();
    EXPECT_THAT(text, HasSubstr("{file: \"mine.csv\", program: [\"0F0 0F1 0B1 0B0\", \"1F0 1F1 1B1 1B0\"]}"));
    EXPECT_EQ(schedule_source(text).value(), "");  // there is nothing to read any more

    const StatusOr<JobSpec> spec = parse_job_spec(text);
    ASSERT_TRUE(spec.ok()) << message(spec.status());
    EXPECT_EQ(spec->parallel.schedule, "file:mine.csv");
    const ComputeProgram program = compute_program(*spec).value();
    EXPECT_EQ(program.actions, swapped_backwards().actions);
    EXPECT_EQ(program.placement, loop_placement(2, 1));
    EXPECT_EQ(program.microbatches, 2);
  }
}

TEST(ScheduleSource, a_schedule_by_name_has_no_file) {
  EXPECT_EQ(schedule_source(job("{pipeline: 2, schedule: 1f1b}")).value(), "");
  EXPECT_FALSE(with_schedule_program(job("{pipeline: 2, schedule: 1f1b}"), swapped_backwards()).ok());
  const JobSpec spec = parse_job_spec(job("{pipeline: 2, schedule: 1f1b}")).value();
  EXPECT_EQ(compute_program(spec)->actions[0].size(), 4u);
}

TEST(ScheduleSource, a_searched_schedule_travels_with_its_program) {
  const std::string searched =
      "{pipeline: 2, schedule: zb-auto, schedule_options: {memory_limit: 3, costs: [2.5, 2, 1]}}";
  const JobSpec asked = parse_job_spec(job(searched)).value();
  EXPECT_EQ(asked.parallel.schedule_options.memory_limit, 3);
  EXPECT_EQ(asked.parallel.schedule_options.costs, (std::array<std::string, 3>{"2.5", "2", "1"}));
  EXPECT_THAT(message(compute_program(asked).status()),
              HasSubstr("line 6: parallel.schedule: expected the program of zb-auto beside its name"));

  const std::string text = with_schedule_program(job(searched), swapped_backwards()).value();
  EXPECT_THAT(text, HasSubstr("{name: \"zb-auto\", program: [\"0F0 0F1 0B1 0B0\", \"1F0 1F1 1B1 1B0\"]}"));
  const JobSpec found = parse_job_spec(text).value();
  EXPECT_EQ(found.parallel.schedule, "zb-auto");
  EXPECT_EQ(compute_program(found)->actions, swapped_backwards().actions);
  EXPECT_THAT(refusal("{pipeline: 2, schedule: {name: 1f1b, program: [\"\", \"\"]}}"),
              HasSubstr("zb-auto, v-auto"));
  EXPECT_THAT(refusal("{pipeline: 2, schedule: v-auto}"),
              HasSubstr("parallel.stages_per_rank: expected 2 for schedule v-auto, found 1"));
}

TEST(ScheduleSource, options_go_to_the_schedule_that_takes_them) {
  const JobSpec pulled = parse_job_spec(job("{pipeline: 2, stages_per_rank: 2, schedule: 1f1b-v,\n"
                                            "  schedule_options: {extra_warmup: [1]}}"))
                             .value();
  const ComputeProgram expected =
      generate({.name = "1f1b-v", .ranks = 2, .microbatches = 2, .extra_warm_up_forwards = {1}}).value();
  EXPECT_EQ(compute_program(pulled)->actions, expected.actions);

  const auto refused = [](const std::string& schedule, const std::string& options, const std::string& why) {
    EXPECT_THAT(refusal("{pipeline: 2, schedule: " + schedule + ", schedule_options: {" + options + "}}"),
                HasSubstr(why));
  };
  refused("1f1b", "extra_warmup: [1]",
          "line 6: parallel.schedule_options.extra_warmup: expected schedule 1f1b-v, found schedule 1f1b");
  refused("1f1b", "memory_limit: 4", "expected a schedule that is searched for, zb-auto or v-auto");
  refused("zb-auto", "memory_limit: 0", "parallel.schedule_options.memory_limit: expected");
  refused("zb-auto", "costs: [1, 2]", "expected a list of 3 numbers: the times of F, I and W");
  refused("zb-auto", "costs: [1, 0, 2]", "parallel.schedule_options.costs: expected a finite number above 0");
  refused("zb-auto", "extra_warmup: [1, 2, 3]", "expected a list of 1 count or 2, one a rank");
  refused("zb-auto", "search_second: 1", "did you mean search_seconds?");
}

TEST(ScheduleSource, a_file_without_its_program_is_refused) {
  EXPECT_THAT(
      refusal("{pipeline: 2, schedule: file:mine.csv}"),
      HasSubstr(
          "line 6: parallel.schedule: expected the file's program beside its name, as `penstock submit`"));
  EXPECT_THAT(refusal("{pipeline: 2, schedule: {file: mine.csv}}"),
              HasSubstr("parallel.schedule.program: expected"));
}

TEST(ScheduleSource, split_backwards_and_pairs_travel_too) {
  const ComputeProgram pairs = generate({.name = "dualpipe-v", .ranks = 1, .microbatches = 2}).value();
  const std::string text =
      with_schedule_program(job("{pipeline: 1, stages_per_rank: 2, schedule: file:mine.json}"), pairs)
          .value();
  EXPECT_THAT(text, HasSubstr("O("));
  EXPECT_THAT(text, HasSubstr("I"));
  const StatusOr<JobSpec> spec = parse_job_spec(text);
  ASSERT_TRUE(spec.ok()) << message(spec.status());
  EXPECT_EQ(compute_program(*spec)->actions, pairs.actions);
  EXPECT_EQ(compute_program(*spec)->placement, pairs.placement);
}

TEST(ScheduleSource, actions_that_no_rank_can_run_are_refused_by_name) {
  const auto refused = [](const std::string& actions, const std::string& why) {
    EXPECT_THAT(refusal("{pipeline: 1, schedule: {file: a, program: [\"" + actions + "\"]}}"),
                HasSubstr(why));
  };
  refused("0F0 O(0B0;1F1) 0B1", "expected a stage below 1 x 1, found O(0B0;1F1)");
  refused("0F0 1B0", "expected a stage below 1 x 1, found 1B0");
  refused("0F0  0B0", "parallel.schedule.program[0]");
  refused("0F0 nonsense", "nonsense");
}

TEST(ScheduleSource, a_program_has_a_text_a_rank) {
  EXPECT_THAT(
      refusal("{pipeline: 2, schedule: {file: a, program: [\"0F0 0B0\"]}}"),
      HasSubstr("parallel.schedule.program: expected a list of 2 texts, one a rank, found a list of 1"));
  EXPECT_THAT(refusal("{pipeline: 1, schedule: {file: a, program: [[0F0]]}}"),
              HasSubstr("expected a text such as"));
  EXPECT_THAT(refusal("{pipeline: 1, schedule: {file: a, program: [\"0F0\"], more: 1}}"), HasSubstr("more"));
}

TEST(ScheduleSource, a_stage_that_nobody_runs_is_left_to_verification) {
  const JobSpec spec =
      parse_job_spec(job("{pipeline: 2, schedule: {file: a, program: [\"0F0 0F1 0B0 0B1\", \"0F0\"]}}"))
          .value();
  const ComputeProgram program = compute_program(spec).value();
  EXPECT_TRUE(program.placement[1].empty());
}

TEST(ScheduleSource, a_program_with_two_replicas_of_a_stage_is_refused_with_what_to_do) {
  const ComputeProgram chimera = generate({.name = "chimera", .ranks = 2, .microbatches = 2}).value();
  const auto text = with_schedule_program(job("{pipeline: 2, schedule: file:mine.json}"), chimera);
  ASSERT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(text.status()),
              HasSubstr("line 6: parallel.schedule: expected a program with every stage on one "
                        "rank, found one with stages on two; a job takes dualpipe"));
}

TEST(ScheduleSource, a_program_too_long_for_the_text_is_refused) {
  const ComputeProgram large =
      generate({.name = "gpipe", .ranks = 4, .microbatches = 60'000, .stages_per_rank = 1}).value();
  const auto text = with_schedule_program(job("{pipeline: 2, schedule: file:mine.csv}"), large);
  ASSERT_EQ(text.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(text.status()), HasSubstr("expected at most 1048576"));
}

}  // namespace
}  // namespace penstock::plan
