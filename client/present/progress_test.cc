#include "client/present/progress.h"

#include <gtest/gtest.h>

namespace penstock::client {
namespace {

v1::Job running(int64_t step) {
  v1::Job job;
  job.set_name("quickstart");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_step(step);
  job.set_steps(200);
  job.set_loss(2.34567);
  job.set_tokens_per_second(12345);
  job.set_step_seconds(0.5);
  return job;
}

TEST(ProgressLine, says_step_loss_pace_and_time_left) {
  EXPECT_EQ(progress_line(running(56)), "step 56/200  loss 2.3457  12.3k tokens/s  ETA 1m12s");
}

TEST(ProgressLine, the_mean_over_the_run_wins_over_the_last_step) {
  // One slow step on a busy machine must not double the time left.
  v1::Job job = running(50);
  job.set_seconds(10);
  EXPECT_EQ(progress_line(job), "step 50/200  loss 2.3457  12.3k tokens/s  ETA 30s");
}

TEST(ProgressLine, steps_of_the_job_before_took_none_of_its_time) {
  v1::Job job = running(180);
  job.set_first_step(170);
  job.set_seconds(10);
  EXPECT_EQ(progress_line(job), "step 180/200  loss 2.3457  12.3k tokens/s  ETA 20s");
  job.set_step(170);
  EXPECT_EQ(progress_line(job), "step 170/200  loss 2.3457  12.3k tokens/s");
}

TEST(ProgressLine, before_the_first_step_there_is_no_pace) {
  v1::Job job;
  job.set_steps(200);
  EXPECT_EQ(progress_line(job), "step 0/200");
}

TEST(ProgressBlock, a_bar_and_what_each_stage_does) {
  v1::Job job = running(100);
  v1::StageStatus* stage = job.add_stages();
  stage->set_busy_fraction(0.75);
  stage->set_forward_ms(1.5);
  EXPECT_EQ(progress_block(job, {.terminal = true, .width = 80}),
            "quickstart  running\n"
            "[=============>             ] step 100/200  loss 2.3457  12.3k tokens/s  ETA 50s\n"
            "stage   0 rank   0 [########################........]  75% busy  F 1.5ms\n");
}

TEST(ProgressBlock, no_line_is_wider_than_the_terminal) {
  v1::Job job = running(100);
  job.set_reason(std::string(300, 'x'));
  for (int i = 0; i < 3; ++i) job.add_stages()->set_busy_fraction(0.5);
  for (const int width : {20, 40, 80}) {
    const std::string block =
        progress_block(job, {.width = width, .stages_max = 2, .glyphs = plan::Glyphs::Unicode});
    size_t start = 0;
    int lines = 0;
    for (size_t end = block.find('\n'); end != std::string::npos; end = block.find('\n', start)) {
      EXPECT_LE(plan::display_width(block.substr(start, end - start)), width);
      start = end + 1;
      ++lines;
    }
    EXPECT_EQ(lines, 5);  // state, bar, two stages, and the count of the rest
  }
}

TEST(ProgressPrinter, plain_lines_come_at_most_once_a_second_but_every_state_is_shown) {
  FakeClock clock;
  ProgressPrinter printer({.terminal = false});
  EXPECT_EQ(printer.next(running(1), clock.now()),
            "quickstart  running\nstep 1/200  loss 2.3457  12.3k tokens/s  ETA 1m40s\n");
  clock.advance(10ms);
  EXPECT_EQ(printer.next(running(2), clock.now()), "");
  clock.advance(1s);
  EXPECT_EQ(printer.next(running(3), clock.now()), "step 3/200  loss 2.3457  12.3k tokens/s  ETA 1m39s\n");
  clock.advance(1s);
  EXPECT_EQ(printer.next(running(3), clock.now()), "");

  v1::Job ended = running(4);
  ended.set_state(v1::JOB_STATE_FAILED);
  ended.set_reason("worker-1 is lost");
  ended.set_seconds(3);
  EXPECT_EQ(printer.next(ended, clock.now()),
            "step 4/200  loss 2.3457  12.3k tokens/s  in 3s\nquickstart  failed: worker-1 is lost\n");
}

TEST(ProgressPrinter, on_a_terminal_each_drawing_wipes_the_one_before) {
  FakeClock clock;
  ProgressPrinter printer({.terminal = true});
  EXPECT_EQ(printer.next(running(1), clock.now()).substr(0, 10), "quickstart");
  EXPECT_EQ(printer.next(running(2), clock.now()), "");
  clock.advance(100ms);
  EXPECT_EQ(printer.next(running(3), clock.now()).substr(0, 7), "\x1b[2A\x1b[J");
}

TEST(ProgressPrinter, a_reason_that_changes_all_the_time_does_not_flood_a_log) {
  FakeClock clock;
  ProgressPrinter printer({.terminal = false});
  v1::Job job;
  job.set_name("a");
  job.set_state(v1::JOB_STATE_PLACING);
  int lines = 0;
  for (int i = 0; i < 1000; ++i) {
    job.set_reason(std::to_string(i));
    if (!printer.next(job, clock.now()).empty()) ++lines;
    clock.advance(10ms);
  }
  EXPECT_EQ(lines, 10);
}

}  // namespace
}  // namespace penstock::client
