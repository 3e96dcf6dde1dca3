// A job that goes on with another one's checkpoint: `restart: {from: ...}` in its text, and what it may not say then.
#include "plan/spec/restart_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spec/same_training.h"

namespace penstock::plan {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr const char* kJob =
    "name: more\n"
    "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 8,\n"
    "  max_position_embeddings: 8}\n"
    "data: {source: a.txt, sequence_length: 8}\n"
    "train: {steps: 90, global_batch_size: 8, microbatch_size: 2}\n"
    "parallel: {pipeline: 2}\n"
    "restart: {from: {path: /s/step-000000050, step: 50, samples: 400}}\n"
    "checkpoint: {every: 20}\n";

std::string with(const std::string& piece, const std::string& replacement) {
  std::string text = kJob;
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), replacement);
}

std::string refusal(const std::string& yaml) {
  return message(parse_job_spec(yaml).status());
}

TEST(RestartSource, folder_or_name_becomes_the_checkpoint_in_the_same_line) {
  const std::string written = "name: a\nrestart: {from: 'quick start', max: 2}  # goes on\n";
  EXPECT_EQ(restart_source(written).value(), "quick start");
  const StatusOr<std::string> found =
      with_restart_source(written, {.path = "/s/step-000000050", .step = 50, .samples = 400});
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(
      *found,
      "name: a\nrestart: {from: {path: \"/s/step-000000050\", step: 50, samples: 400}, max: 2}  # goes on\n");
  EXPECT_EQ(restart_source(*found).value(), "");
}

TEST(RestartSource, job_without_the_key_has_nothing_to_find) {
  for (const char* text : {"name: a\n", "restart: {max: 2}\n", "restart: 3\n", ""})
    EXPECT_EQ(restart_source(text).value(), "") << text;
  EXPECT_FALSE(with_restart_source("name: a\n", {.path = "/s"}).ok());
  EXPECT_FALSE(restart_source("name: [\n").ok());
}

TEST(RestartFrom, checkpoint_is_read_and_its_path_put_below_the_folder_of_the_job_file) {
  const StatusOr<JobSpec> spec = parse_job_spec(kJob);
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->restart.from.path, "/s/step-000000050");
  EXPECT_EQ(spec->restart.from.step, 50);
  EXPECT_EQ(spec->restart.from.samples, 400);
  EXPECT_THAT(with_absolute_sources(with("/s/step-000000050", "step-000000050"), "/jobs").value(),
              HasSubstr("{path: \"/jobs/step-000000050\", step: 50, samples: 400}"));
  EXPECT_EQ(parse_job_spec(with("restart: {from: {path: /s/step-000000050, step: 50, samples: 400}}\n", ""))
                ->restart.from.path,
            "");
}

TEST(RestartFrom, source_that_nobody_has_found_is_refused_with_what_finds_it) {
  EXPECT_EQ(
      refusal(with("{path: /s/step-000000050, step: 50, samples: 400}", "quickstart")),
      "line 7: restart.from: expected {path: FOLDER, step: N, samples: M}, which `penstock submit` makes of a "
      "checkpoint's folder and of a job's name, found quickstart");
  EXPECT_THAT(refusal(with(", samples: 400", "")), StartsWith("line 7: restart.from.samples: expected"));
  EXPECT_THAT(refusal(with("samples: 400", "sample: 400")), HasSubstr("did you mean samples?"));
}

TEST(RestartFrom, what_contradicts_it_is_refused_with_line_and_remedy) {
  EXPECT_THAT(
      refusal(with("  max_position_embeddings: 8}", "  max_position_embeddings: 8, from: /w}")),
      StartsWith("line 3: model.from: expected no such key beside restart.from, whose checkpoint brings the "
                 "weights"));
  EXPECT_EQ(
      refusal(with("steps: 90", "steps: 50")),
      "line 5: train.steps: expected more than the 50 steps of the checkpoint that restart.from names, found 50");
  EXPECT_EQ(
      refusal(with("global_batch_size: 8", "global_batch_size: 16")),
      "line 5: train.global_batch_size: expected 8, since the checkpoint that restart.from names has consumed 400 "
      "sequences in 50 steps (model.from begins at step 0 with its weights alone, and any batch), found 16");
  for (const char* directory : {"/s", "/s/", "/s/../s"}) {
    EXPECT_THAT(
        refusal(with("every: 20", std::string("every: 20, directory: ") + directory)),
        StartsWith(
            "line 8: checkpoint.directory: expected a folder of the job's own: that of restart.from is "
            "only read, found /s"));
  }
  EXPECT_EQ(refusal(with("every: 20", "every: 20, directory: /s2")), "");
}

TEST(RestartFrom, pipeline_without_a_flush_is_drained_where_the_checkpoint_ends) {
  const std::string stale =
      with("parallel: {pipeline: 2}", "parallel: {pipeline: 2, schedule: pipedream, flush_every: 20}");
  std::string text = stale;
  text.replace(text.find("steps: 90"), 9, "optimizer: {clip_grad_norm: 0}, steps: 100");
  EXPECT_EQ(
      refusal(text),
      "line 6: parallel.flush_every: expected a divisor of train.steps (100) and checkpoint.every (20) and "
      "restart.from.step (50), where the pipeline must be drained, as 10, found 20");
  text.replace(text.find("flush_every: 20"), 15, "flush_every: 10");
  EXPECT_EQ(refusal(text), "");
}

TEST(RestartFrom, resumed_job_keeps_what_it_began_from) {
  const auto resumed = [](const std::string& yaml) {
    return message(check_same_training(parse_job_spec(kJob).value(), parse_job_spec(yaml).value()));
  };
  EXPECT_EQ(resumed(with("pipeline: 2", "pipeline: 1")), "");
  EXPECT_EQ(resumed(with("/s/step", "/t/step")),
            "line 7: restart.from: expected /s/step-000000050, as the job has it, found /t/step-000000050");
  EXPECT_EQ(resumed(with("restart: {from: {path: /s/step-000000050, step: 50, samples: 400}}\n", "")),
            "line 1: restart.from: expected /s/step-000000050, as the job has it, found no such key");
}

TEST(RestartFrom, what_differs_from_the_job_of_the_checkpoint_is_listed) {
  const JobSpec job = parse_job_spec(kJob).value();
  EXPECT_THAT(training_differences(job, job), IsEmpty());
  const JobSpec cut_anew = parse_job_spec(with("pipeline: 2", "pipeline: 1")).value();
  EXPECT_THAT(training_differences(job, cut_anew), IsEmpty());
  std::string text = with("steps: 90", "steps: 95, seed: 3");
  text.replace(text.find("  max_position_embeddings: 8"), 0, "rope_theta: 500, ");
  const JobSpec other = parse_job_spec(text).value();
  EXPECT_THAT(training_differences(job, other),
              ElementsAre("model.rope_theta: 500 here, not there", "train.steps: 90 there, 95 here",
                          "train.seed: no such key there, 3 here"));
  std::string lagging = with("pipeline: 2", "pipeline: 2, schedule: pipedream, flush_every: 10");
  lagging.replace(lagging.find("steps: 90"), 9, "steps: 90, optimizer: {clip_grad_norm: 0}");
  EXPECT_THAT(training_differences(job, parse_job_spec(lagging).value()),
              Contains("line 6: parallel.schedule: expected 1f1b, as the job has it, found pipedream; weight "
                       "versions follow from it"));
}

}  // namespace
}  // namespace penstock::plan
