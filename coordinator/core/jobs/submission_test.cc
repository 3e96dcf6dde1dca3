// Jobs that are submitted: when they are answered, what is refused, and a store that cannot take them.
#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

TEST(Submission, is_answered_and_seen_only_when_it_is_durable) {
  // An acknowledged job must survive the coordinator's death.
  World world;
  world.durable_at_once = false;
  const auto commands = world.tell(Submit{1, "ann", "", job_spec({})});
  EXPECT_EQ(of<Save>(commands).size(), 1u);
  EXPECT_TRUE(of<AnswerSubmit>(commands).empty());
  EXPECT_EQ(view_job(world.state, "tiny", false, 0).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(view_jobs(world.state, 0).empty());

  const auto answers = of<AnswerSubmit>(world.make_durable());
  ASSERT_EQ(answers.size(), 1u);
  ASSERT_TRUE(answers[0].outcome.ok());
  EXPECT_EQ(answers[0].outcome->name, "tiny");
  EXPECT_EQ(answers[0].outcome->ranks, 2);
  EXPECT_EQ(answers[0].outcome->microbatches, 4);
  EXPECT_EQ(answers[0].outcome->stage_items.size(), 2u);
  EXPECT_TRUE(view_job(world.state, "tiny", false, 0).ok());
}

TEST(Submission, taken_name_gets_the_next_number) {
  World world;
  EXPECT_EQ(world.submit({}), "tiny");
  EXPECT_EQ(world.submit({}), "tiny-2");
  EXPECT_EQ(world.submit({}), "tiny-3");
}

TEST(Submission, repeated_request_id_submits_once) {
  World world;
  EXPECT_EQ(world.submit({}, "r1"), "tiny");
  EXPECT_EQ(world.submit({}, "r1"), "tiny");
  EXPECT_EQ(world.submit({}, "r2"), "tiny-2");
  EXPECT_EQ(world.state.jobs.size(), 2u);
}

TEST(Submission, repetition_before_durability_waits_for_it_too) {
  World world;
  world.durable_at_once = false;
  world.tell(Submit{1, "ann", "r1", job_spec({})});
  EXPECT_TRUE(of<AnswerSubmit>(world.tell(Submit{2, "ann", "r1", job_spec({})})).empty());
  const auto answers = of<AnswerSubmit>(world.make_durable());
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].outcome->name, answers[1].outcome->name);
}

TEST(Submission, request_id_with_another_file_is_refused) {
  World world;
  world.submit({}, "r1");
  const auto answers = of<AnswerSubmit>(world.tell(Submit{9, "ann", "r1", job_spec({.steps = 99})}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].outcome.status().code(), StatusCode::kAlreadyExists);
}

TEST(Submission, live_jobs_are_bounded) {
  Options options;
  options.jobs_live = 3;
  World world(options);
  for (int i = 0; i < 3; ++i) world.submit({});
  const auto answers = of<AnswerSubmit>(world.tell(Submit{9, "ann", "", job_spec({})}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].outcome.status().code(), StatusCode::kResourceExhausted);
}

TEST(Submission, store_that_does_not_commit_turns_submissions_away) {
  Options options;
  options.transactions_pending = 2;
  World world(options);
  world.durable_at_once = false;
  world.tell(Submit{1, "ann", "", job_spec({})});
  world.tell(Submit{2, "ann", "", job_spec({})});
  const auto answers = of<AnswerSubmit>(world.tell(Submit{3, "ann", "", job_spec({})}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].outcome.status().code(), StatusCode::kUnavailable);
}

TEST(Submit, directory_of_another_live_job_is_refused_by_name) {
  World world;
  const auto submit = [&](const std::string& directory) {
    const std::string section = fmt::format("checkpoint: {{every: 2, directory: {}}}\n", directory);
    const auto commands = world.tell(Submit{93, "ann", "", job_spec({.extra = section})});
    return of<AnswerSubmit>(commands).at(0).outcome.status();
  };
  ASSERT_TRUE(submit("/kept").ok());
  EXPECT_EQ(submit("/x/..//kept/").code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(message(submit("/kept")), HasSubstr("found /kept of job tiny, which has not ended"));
  EXPECT_EQ(world.state.jobs.size(), 1u);
  EXPECT_TRUE(submit("/kept-too").ok());
  world.tell(Cancel{1, "tiny", "bob"});
  EXPECT_TRUE(submit("/kept").ok());
}

TEST(Store, call_that_waits_for_a_full_disk_is_told_so_and_later_ones_submit_nothing) {
  World world;
  world.durable_at_once = false;
  world.tell(Submit{1, "ann", "", job_spec({})});
  world.tell(StoreHealth{resource_exhausted("COMMIT: database or disk is full")});
  EXPECT_TRUE(of<AnswerSubmit>(world.tick(2s)).empty());
  const auto late = of<AnswerSubmit>(world.tick(1s));
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(late[0].outcome.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(message(late[0].outcome.status()), HasSubstr("disk is full"));
  EXPECT_THAT(message(late[0].outcome.status()), HasSubstr("may still run"));
  const auto refused = of<AnswerSubmit>(world.tell(Submit{2, "ann", "", job_spec({})}));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_THAT(message(refused[0].outcome.status()), HasSubstr("nothing was submitted"));
  world.tell(StoreHealth{ok_status()});
  EXPECT_TRUE(of<AnswerSubmit>(world.make_durable()).empty());  // answered once
  EXPECT_EQ(world.state.jobs.size(), 1u);
  EXPECT_TRUE(world.job("tiny").admitted);
}

TEST(Store, cancel_on_a_full_disk_stops_the_ranks_at_once_and_calls_that_wait_are_bounded) {
  Options options;
  options.answers_pending = 2;
  World world(options);
  const std::string name = world.run();
  world.durable_at_once = false;
  world.tell(StoreHealth{resource_exhausted("database or disk is full")});
  EXPECT_EQ(messages<Abort>(world, world.tell(Cancel{1, name, "bob"})).size(), 2u);
  world.tell(Cancel{2, name, "bob"});
  const auto third = of<AnswerControl>(world.tell(Cancel{3, name, "bob"}));
  ASSERT_EQ(third.size(), 1u);
  EXPECT_EQ(third[0].state.status().code(), StatusCode::kResourceExhausted);
  const auto late = of<AnswerControl>(world.tick(3s));
  ASSERT_EQ(late.size(), 2u);
  EXPECT_THAT(message(late[0].state.status()), HasSubstr("has been told to stop"));
  world.make_durable();
  EXPECT_EQ(world.state_of(name), Cancelled);
}

}  // namespace
}  // namespace penstock::coordinator
