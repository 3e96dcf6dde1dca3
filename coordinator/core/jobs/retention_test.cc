// What is kept of a job and for how long: events, lines of its log, losses, the job itself.
#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;
using enum JobState;

Options small_options() {
  Options options;
  options.jobs_live = 3;
  options.jobs_ended = 2;
  return options;
}

TEST(Events, are_bounded_per_job) {
  Options options;
  options.events_per_job = 3;
  World world(options);
  const std::string name = world.run();
  world.tell(Cancel{1, name, "bob"});
  EXPECT_EQ(world.job(name).events.size(), 3u);
  EXPECT_EQ(world.job(name).events.back().state, Cancelled);
  EXPECT_EQ(world.archive.jobs()[0].events.size(), 3u);
}

TEST(Events, waiting_to_and_fro_is_one_event_and_the_stored_ones_are_the_shown_ones) {
  World world;
  world.open(registration("worker-0"));
  world.submit({.name = "first", .pipeline = 2});
  const std::string name = world.submit({.name = "second", .pipeline = 1});
  world.tick();
  for (int i = 0; i < 5; ++i) {
    world.open(registration("worker-1", 1));  // the first job takes both, and the second one waits behind it
    world.tell(SessionClosed{world.sessions["worker-1"], "gone"});
    world.tick();
  }
  for (const StoredJob& stored : world.archive.jobs()) {
    const Job& job = world.job(stored.definition.name);
    EXPECT_EQ(stored.events, std::vector<JobEventView>(job.events.begin(), job.events.end()));
    EXPECT_EQ(stored.next_event, job.next_event);
  }
  EXPECT_LE(world.job(name).events.size(), 5u);
}

TEST(Logs, are_kept_by_rank_and_last_words_count_after_the_end) {
  World world;
  const std::string name = world.run();
  world.say("worker-0", LogBatch{world.key(name, 0), RankIndex(0), {"hello"}, 0});
  world.say("worker-1", LogBatch{world.key(name, 1), RankIndex(1), {"world"}, 3});
  world.tell(Cancel{1, name, "bob"});
  EXPECT_FALSE(read_log(world.state, name, RankIndex(), 0, 10)->ended);  // the executors may still speak
  world.say("worker-0", LogBatch{world.key(name, 0), RankIndex(0), {"goodbye"}, 0});
  world.all_stopped(name);
  const auto page = read_log(world.state, name, RankIndex(), 0, 10);
  ASSERT_EQ(page->lines.size(), 4u);
  EXPECT_THAT(page->lines[1].text, HasSubstr("3 lines were lost"));
  EXPECT_EQ(page->lines[3].text, "goodbye");
  EXPECT_TRUE(page->ended);
  EXPECT_EQ(read_log(world.state, name, RankIndex(1), 0, 10)->lines.size(), 2u);
}

TEST(Success, losses_of_the_oldest_ended_jobs_are_left_to_the_store) {
  // A thousand ended jobs of a million steps each would fill the memory.
  Options options;
  options.losses_of_ended = 4;
  World world(options);
  world.open_workers(2);
  for (const char* job : {"first", "second"}) {
    const std::string name = world.submit({.name = job});
    world.tick();
    world.all_ready(name);
    world.run_steps(name, 0, 3);
    world.all_finish(name);
    world.all_stopped(name);
    ASSERT_EQ(world.state_of(name), Succeeded);
  }
  EXPECT_TRUE(world.job("first").losses.empty());
  EXPECT_EQ(view_job(world.state, "first", true, 0)->losses_in_store, 3u);
  EXPECT_EQ(view_job(world.state, "first", false, 0)->losses_in_store, 0u);
  EXPECT_EQ(view_job(world.state, "second", true, 0)->losses.size(), 3u);
  EXPECT_EQ(world.archive.find("first")->losses.size(), 3u);
}

TEST(Retirement, oldest_ended_jobs_leave_when_there_are_too_many) {
  World world(small_options());
  for (int i = 0; i < 4; ++i) {
    const std::string name = world.submit({.name = fmt::format("job-{}", i)}, fmt::format("r{}", i));
    world.tell(Cancel{1, name, "bob"});
  }
  EXPECT_FALSE(world.state.jobs.contains("job-0"));
  EXPECT_FALSE(world.state.jobs.contains("job-1"));
  EXPECT_TRUE(world.state.jobs.contains("job-3"));
  EXPECT_EQ(world.archive.jobs().size(), 2u);
  EXPECT_EQ(world.state.names_by_request.size(), 2u);
  int retired = 0;
  for (const Observed& seen : of<Observed>(world.sent))
    retired += std::holds_alternative<JobRetired>(seen.observation);
  EXPECT_EQ(retired, 2);
}

TEST(Retirement, name_is_not_free_before_the_executors_are_gone) {
  // A namesake's attempt 1 would have the very key that the old executor carries.
  Options options = small_options();
  options.jobs_ended = 0;
  World world(options);
  const std::string name = world.run();
  world.tell(Cancel{1, name, "bob"});
  EXPECT_TRUE(world.state.jobs.contains(name));
  EXPECT_EQ(world.submit({}), "tiny-2");
  world.stopped(name, 0);
  EXPECT_TRUE(world.state.jobs.contains(name));
  world.stopped(name, 1);
  EXPECT_FALSE(world.state.jobs.contains(name));
}

}  // namespace
}  // namespace penstock::coordinator
