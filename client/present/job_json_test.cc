#include "client/present/job_json.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "client/present/job_words.h"

namespace penstock::client {
namespace {

v1::Job running_job() {
  v1::Job job;
  job.set_name("quickstart");
  job.set_state(v1::JOB_STATE_RUNNING);
  job.set_reason("all 2 ranks are ready");
  job.set_step(7);
  job.set_steps(200);
  job.set_loss(2.5);
  job.set_tokens_per_second(1234.5);
  job.set_attempt(1);
  v1::StageStatus* stage = job.add_stages();
  stage->set_stage(0);
  stage->set_rank(0);
  stage->add_layers("embedding");
  stage->add_layers("0");
  stage->set_forward_ms(1.5);
  stage->set_memory_peak_bytes(4096);
  return job;
}

TEST(JobJson, fields_stand_in_the_promised_order_and_what_is_unknown_is_null_or_absent) {
  // Programs read these names; a stage leaves out what it does not measure, so that zero always means zero.
  EXPECT_EQ(
      compact(job_json(running_job())),
      R"({"name":"quickstart","state":"running","reason":"all 2 ranks are ready","weights_digest":null,"weights_directory":null,)"
      R"("step":7,"loss":2.5,"tokens_per_second":1234.5,"attempt":1,"stages":[{"stage":0,"rank":0,)"
      R"("layers":["embedding","0"],"forward_ms":1.5,"memory_peak_bytes":4096}]})");
}

TEST(JobJson, a_queued_job_has_no_loss_yet) {
  v1::Job job;
  job.set_name("a");
  job.set_state(v1::JOB_STATE_QUEUED);
  EXPECT_EQ(
      compact(job_json(job)),
      R"({"name":"a","state":"queued","reason":"","weights_digest":null,"weights_directory":null,"step":0,"loss":null,)"
      R"("tokens_per_second":null,"attempt":0,"stages":[]})");
}

TEST(OutcomeJson, losses_are_text_that_reads_back_to_the_same_bits) {
  v1::Job job = running_job();
  job.set_seconds(12.5);
  job.add_losses(5.545177444479562);
  job.add_losses(0.1);
  const Json json = outcome_json(job);
  EXPECT_EQ(json["losses"], Json({"5.545177444479562", "0.1"}));
  EXPECT_EQ(json["seconds"], 12.5);
  EXPECT_EQ(std::stod(json["losses"][0].get<std::string>()), 5.545177444479562);
}

TEST(OutcomeJson, a_loss_that_is_no_number_is_said_as_text) {
  v1::Job job = running_job();
  job.set_loss(std::numeric_limits<double>::quiet_NaN());
  job.add_losses(std::numeric_limits<double>::infinity());
  const Json json = outcome_json(job);
  EXPECT_EQ(json["loss"], "nan");
  EXPECT_EQ(json["losses"][0], "inf");
}

TEST(WorkerJson, a_free_worker_has_no_job_no_rank_and_no_executor) {
  v1::Worker worker;
  worker.set_name("worker-0");
  worker.set_state("free");
  worker.set_pid(41);
  worker.set_device("cpu:0");
  worker.set_rank(-1);
  EXPECT_EQ(
      compact(worker_json(worker)),
      R"({"name":"worker-0","state":"free","pid":41,"executor_pid":null,"device":"cpu:0","job":null,"rank":null,"drained_by":null})");
  worker.set_job("quickstart");
  worker.set_rank(0);
  worker.set_executor_pid(42);
  EXPECT_EQ(worker_json(worker)["rank"], 0);
  EXPECT_EQ(worker_json(worker)["executor_pid"], 42);
}

TEST(Yaml, holds_the_same_values) {
  const Json json =
      Json::parse(R"([{"name":"a: b","stages":[],"more":{"x":1,"y":[true,null]}},{"name":"c"}])");
  EXPECT_EQ(yaml(json),
            "- name: \"a: b\"\n"
            "  stages: []\n"
            "  more:\n"
            "    x: 1\n"
            "    y:\n"
            "      - true\n"
            "      - null\n"
            "- name: \"c\"\n");
  EXPECT_EQ(yaml(Json::array()), "[]\n");
  EXPECT_EQ(yaml(Json::parse("[[1,[2]],{}]")), "- - 1\n  - - 2\n- {}\n");
}

TEST(Compact, text_that_is_no_utf8_is_replaced) {
  EXPECT_EQ(compact(Json("a\xff")), "\"a\xEF\xBF\xBD\"");
}

TEST(ExitCode, follows_the_state_and_never_calls_a_failure_a_success) {
  v1::Job job;
  const auto with = [&](v1::JobState state, int said) {
    job.set_state(state);
    job.set_exit_code(said);
    return exit_code_of(job);
  };
  EXPECT_EQ(with(v1::JOB_STATE_SUCCEEDED, 0), 0);
  EXPECT_EQ(with(v1::JOB_STATE_FAILED, 1), 1);
  EXPECT_EQ(with(v1::JOB_STATE_FAILED, 2), 2);
  EXPECT_EQ(with(v1::JOB_STATE_CANCELLED, 0), 3);
  EXPECT_EQ(with(v1::JOB_STATE_FAILED, 4), 4);
  EXPECT_EQ(with(v1::JOB_STATE_FAILED, 0), 1);
  EXPECT_EQ(with(v1::JOB_STATE_RUNNING, 0), 1);
}

TEST(ShortestDecimal, reads_back_to_the_same_double) {
  for (const double value : {1.0, 0.1, 1.0 / 3, 5e-324, 1.7976931348623157e308, -2.5}) {
    EXPECT_EQ(std::strtod(shortest_decimal(value).c_str(), nullptr), value) << shortest_decimal(value);
  }
  EXPECT_EQ(shortest_decimal(0.1), "0.1");
  EXPECT_EQ(shortest_decimal(3), "3");
}

}  // namespace
}  // namespace penstock::client
