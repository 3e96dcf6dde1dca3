#include "client/present/job_tables.h"

#include <gmock/gmock.h>

namespace penstock::client {
namespace {

constexpr int64_t kNow = 1'700'000'100'000;

v1::Job job() {
  v1::Job job;
  job.set_name("quickstart");
  job.set_state(v1::JOB_STATE_PLACING);
  job.set_reason("waits for 2 more workers (2 of 4 free)");
  job.set_steps(200);
  job.set_schedule("1f1b");
  job.set_ranks(4);
  job.set_submitted_unix_ms(kNow - 12'300);
  job.set_since_unix_ms(kNow - 12'000);
  job.set_by("placement");
  return job;
}

TEST(JobTable, what_is_not_known_is_a_dash) {
  EXPECT_EQ(job_table({job()}, kNow, TableWidth::Narrow).text(),
            "NAME         STATE      STEP   LOSS   TOKENS/S   AGE\n"
            "quickstart   placing   0/200      -          -   12s\n");
}

TEST(JobTable, wide_says_why_a_job_is_where_it_is) {
  EXPECT_EQ(job_table({job()}, kNow, TableWidth::Wide).text(),
            "NAME         STATE      STEP   LOSS   TOKENS/S   SCHEDULE   RANKS   ATTEMPT   AGE   REASON\n"
            "quickstart   placing   0/200      -          -   1f1b           4         0   12s   "
            "waits for 2 more workers (2 of 4 free)\n");
}

TEST(JobTable, absurd_numbers_and_long_reasons_leave_the_table_readable) {
  v1::Job absurd = job();
  absurd.set_loss(1e300);
  absurd.set_tokens_per_second(1e300);
  absurd.set_reason(std::string(500, 'x'));
  const std::vector<std::string> lines = job_table({absurd}, kNow, TableWidth::Wide).lines();
  EXPECT_LT(lines[1].size(), 200U);
  EXPECT_NE(lines[1].find(" 1.0000e+300 "), std::string::npos);
  EXPECT_NE(describe_job(absurd, kNow).find(absurd.reason()), std::string::npos);
}

TEST(WorkerTable, a_worker_says_which_rank_of_which_job_it_runs) {
  v1::Worker busy;
  busy.set_name("worker-0");
  busy.set_state("assigned");
  busy.set_device("cpu:0");
  busy.set_job("quickstart");
  busy.set_since_unix_ms(kNow - 3'700'000);
  v1::Worker free;
  free.set_name("worker-1");
  free.set_state("free");
  free.set_device("cpu:0");
  free.set_rank(-1);
  EXPECT_EQ(worker_table({busy, free}, kNow, TableWidth::Narrow).text(),
            "NAME       STATE      DEVICE   JOB          RANK     AGE\n"
            "worker-0   assigned   cpu:0    quickstart      0   1h01m\n"
            "worker-1   free       cpu:0    -               -       -\n");
}

TEST(DescribeJob, shows_stages_and_events) {
  v1::Job described = job();
  v1::StageStatus* stage = described.add_stages();
  stage->set_stage(1);
  stage->set_rank(1);
  stage->set_worker("worker-1");
  for (const char* layer : {"embedding", "0", "1", "2", "head"}) stage->add_layers(layer);
  stage->set_forward_ms(1.234);
  stage->set_activation_slots(4);
  stage->set_activation_slots_peak(3);
  v1::JobEvent* event = described.add_events();
  event->set_unix_ms(kNow - 5'000);
  event->set_state(v1::JOB_STATE_QUEUED);
  event->set_by("anna");
  EXPECT_EQ(describe_job(described, kNow),
            "Name:           quickstart\n"
            "State:          placing for 12s, by placement\n"
            "Reason:         waits for 2 more workers (2 of 4 free)\n"
            "Submitted:      12s ago\n"
            "Schedule:       1f1b\n"
            "Ranks:          4\n"
            "Attempt:        0\n"
            "Step:           0/200\n"
            "Loss:           -\n"
            "Tokens/s:       -\n"
            "Run time:       0s\n"
            "\n"
            "Stages (times: median of the last step; memory: of the rank)\n"
            "  STAGE   RANK   WORKER     LAYERS                F-MS   B-MS   WAIT-MS   BUSY   SLOTS   PEAK   "
            "PREDICTED\n"
            "      1      1   worker-1   embedding,0..2,head   1.23      -         -      -     3/4      -   "
            "        -\n"
            "\n"
            "Events\n"
            "  AGE   STATE    BY     REASON\n"
            "   5s   queued   anna   -\n");
}

TEST(DescribeJob, the_longest_name_of_a_fact_keeps_a_blank) {
  v1::Job ended = job();
  ended.set_weights_digest("8528");
  ended.set_weights_directory("/state/jobs/quickstart/weights");
  EXPECT_NE(describe_job(ended, kNow).find("\nWeights digest: 8528\n"), std::string::npos);
  EXPECT_NE(describe_job(ended, kNow).find("\nWeights:        /state/jobs/quickstart/weights\n"),
            std::string::npos);
}

TEST(DescribeWorker, shows_every_device) {
  v1::Worker first;
  first.set_name("worker-0");
  first.set_state("assigned");
  first.set_device("cpu:0");
  first.set_job("quickstart");
  first.set_rank(2);
  first.set_host("a");
  first.set_pid(7);
  first.set_executor_pid(9);
  first.set_incarnation(3);
  first.set_since_unix_ms(kNow - 5'000);
  v1::Worker second = first;
  second.set_state("free");
  second.set_device("cpu:1");
  second.set_job("");
  second.set_executor_pid(0);
  EXPECT_EQ(describe_worker(std::vector{first, second}, kNow),
            "Name:           worker-0\n"
            "Host:           a\n"
            "Pid:            7\n"
            "Incarnation:    3\n"
            "\n"
            "Devices\n"
            "  DEVICE   STATE      JOB          RANK   EXECUTOR   AGE\n"
            "  cpu:0    assigned   quickstart      2          9    5s\n"
            "  cpu:1    free       -               -          -    5s\n");
  first.set_drained_by("ann");
  EXPECT_THAT(describe_worker(std::vector{first, second}, kNow),
              ::testing::HasSubstr(
                  "Drained by:     ann (no new ranks; a job leaves it when it is paused and resumed)\n"));
}

}  // namespace
}  // namespace penstock::client
