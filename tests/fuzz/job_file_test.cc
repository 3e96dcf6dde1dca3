// Job files that nobody meant to write: parse_job_spec answers every one with a spec that holds its promises
// or with a message for a person.
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/spec/auto_source.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/parameters.h"
#include "tests/fuzz/mutator.h"

namespace penstock::plan {
namespace {

const std::vector<std::string> kJobs = {
    R"(name: quickstart
model:
  vocab_size: 256
  hidden_size: 128
  num_hidden_layers: 8
  num_attention_heads: 4
  num_key_value_heads: 2
  intermediate_size: 352
  max_position_embeddings: 128
  rms_norm_eps: 1e-5
data: {source: [corpus.txt, "a b.txt", '/c/*.txt'], format: auto, tokenizer: bytes, sequence_length: 128}
train:
  steps: 200
  global_batch_size: 32
  microbatch_size: 4
  dtype: float32
  optimizer: {name: adamw, lr: 1e-3, betas: [0.9, 0.95], weight_decay: 0.1, clip_grad_norm: 1.0}
  lr_schedule: {name: cosine, warmup_steps: 20}
parallel: {pipeline: 4, stages_per_rank: 2, schedule: interleaved-1f1b, split: auto, p2p: {mode: two-sided}}
device: {kind: cpu, threads: 1}
memory_budget: 80GB
restart: {max: 5}
)",
    R"(name: split
model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 8,
        max_position_embeddings: 16}
data: {source: a.txt, sequence_length: 16}
train: {steps: 1, global_batch_size: 4, microbatch_size: 1}
parallel: {pipeline: 3, split: [[embedding, 0], [1, 2], [3, head]]}
)",
    R"(name: layers
model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 8,
        max_position_embeddings: 16}
data: {source: a.txt, sequence_length: 16}
train: {steps: 1, global_batch_size: 4, microbatch_size: 1}
parallel: {pipeline: 3, split: {layers: [1, 1, 2]}}
)",
    R"(name: mixed
model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 8,
        max_position_embeddings: 16}
data:
  source: [{path: a.npy, weight: 0.7}, {weight: 0.3, path: 'b/*.bin'}]
  token_type: uint32
  sequence_length: 16
  epochs: 0
  end_of_document: 2
train: {steps: 1, global_batch_size: 4, microbatch_size: 1}
validation: {source: [c.npy, d.npy], every: 10, microbatches: 3}
)"};

const std::string kFree = R"(name: free
model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2, intermediate_size: 8,
        max_position_embeddings: 16}
data: {source: a.txt, sequence_length: 16}
train: {steps: 1, global_batch_size: 12, microbatch_size: auto}
parallel:
  pipeline: 2
  schedule: auto
  split: auto
  schedule_options: {search_seconds: 1}
)";

const std::vector<std::string> kWords = {": ",
                                         "\n",
                                         "\n  ",
                                         "- ",
                                         "[",
                                         "]",
                                         "{",
                                         "}",
                                         "&a ",
                                         "*a",
                                         "!!str ",
                                         "? ",
                                         "|\n",
                                         ">\n",
                                         "#",
                                         "'",
                                         "\"",
                                         "---\n",
                                         "...\n",
                                         "%YAML 1.2\n",
                                         "\t",
                                         ".nan",
                                         ".inf",
                                         "1e400",
                                         "-0",
                                         "null",
                                         "~",
                                         "true",
                                         "auto",
                                         "embedding",
                                         "head",
                                         "layers: ",
                                         "split: ",
                                         "moe: ",
                                         "last-lighter",
                                         "naive",
                                         "gpipe",
                                         "\xff",
                                         "\xf0\x9f\x99\x82",
                                         std::string(1, '\0')};

void expect_a_readable_refusal(const Status& status, StatusCode code = StatusCode::kInvalidArgument) {
  EXPECT_EQ(status.code(), code);
  const std::string text = message(status);
  EXPECT_FALSE(text.empty());
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_LE(text.size(), 16384u);
  const auto hidden = [](char c) { return static_cast<unsigned char>(c) < 0x20 && c != '\n'; };
  EXPECT_EQ(std::count_if(text.begin(), text.end(), hidden), 0) << text;
}

void expect_a_spec_that_holds_its_promises(const JobSpec& spec, const std::string& yaml) {
  EXPECT_EQ(spec.yaml, yaml);
  EXPECT_EQ(spec.parallel.split.size(), static_cast<size_t>(spec.stages()));
  EXPECT_TRUE(check_split(spec.model, spec.parallel.split).ok());
  const int64_t missing = spec.microbatches() * spec.train.microbatch_size - spec.train.global_batch_size;
  EXPECT_TRUE(missing >= 0 && missing < spec.train.microbatch_size);  // the last microbatch may be uneven
  EXPECT_GT(spec.tokens_per_step(), 0);
  for (const ParameterSpec& parameter : model_parameters(spec.model)) EXPECT_GT(parameter.elements(), 0);
  const StatusOr<std::string> absolute = with_absolute_sources(yaml, "/jobs");
  if (!absolute.ok()) return expect_a_readable_refusal(absolute.status());
  const StatusOr<JobSpec> again = parse_job_spec(*absolute);
  ASSERT_TRUE(again.ok()) << again.status() << "\n" << *absolute;
  EXPECT_EQ(again->lines, spec.lines);
  for (const std::string& source : again->data.sources) EXPECT_EQ(source.front(), '/');
  for (const std::string& source : again->validation.data.sources) EXPECT_EQ(source.front(), '/');
  EXPECT_TRUE(spec.data.weights.empty() || spec.data.weights.size() == spec.data.sources.size());
  EXPECT_EQ(spec.validation.every > 0, spec.validation.microbatches > 0);
}

TEST(FuzzJobFile, every_text_gets_a_sound_spec_or_a_message) {
  fuzz::Mutator mutator("job file", kWords);
  fuzz::Rounds rounds(4000);
  int accepted = 0;
  while (rounds.next() && !::testing::Test::HasFailure()) {
    const std::string text = mutator.mutated(kJobs[mutator.below(kJobs.size())]);
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()) + ", text:\n" + text);
    const StatusOr<JobSpec> spec = parse_job_spec(text);
    if (!spec.ok()) {
      expect_a_readable_refusal(spec.status());
      continue;
    }
    ++accepted;
    expect_a_spec_that_holds_its_promises(*spec, text);
  }
  // A mutator that only ever breaks the syntax would leave the checks behind it untried.
  EXPECT_GT(accepted, rounds.done() / 50);
  EXPECT_LT(accepted, rounds.done() * 9 / 10);
}

// What is written in place of `auto` is what is read there, or nothing is written.
TEST(FuzzJobFile, what_is_planned_is_written_or_refused) {
  fuzz::Mutator mutator("job file with auto", kWords);
  fuzz::Rounds rounds(1500);
  int written = 0;
  while (rounds.next() && !::testing::Test::HasFailure()) {
    const std::string text = mutator.mutated(kFree);
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()) + ", text:\n" + text);
    const StatusOr<std::vector<JobSpec>> jobs = jobs_to_plan(text);
    if (!jobs.ok()) {
      expect_a_readable_refusal(jobs.status());
      continue;
    }
    ASSERT_FALSE(jobs->empty());
    const JobSpec& job = jobs->back();
    const PlannedFields fields = {.schedule = "1f1b",
                                  .stages_per_rank = 1,
                                  .microbatch_size = job.train.microbatch_size,
                                  .split = automatic_split(job.model, job.parallel.pipeline)};
    const StatusOr<std::string> planned = with_planned_fields(text, fields, {"a note"});
    if (!planned.ok()) {
      expect_a_readable_refusal(planned.status(), StatusCode::kFailedPrecondition);
      continue;
    }
    ++written;
    const StatusOr<JobSpec> again = parse_job_spec(*planned);
    ASSERT_TRUE(again.ok()) << again.status() << "\n" << *planned;
    EXPECT_EQ(again->parallel.schedule, "1f1b");
    EXPECT_EQ(again->train.microbatch_size, job.train.microbatch_size);
    EXPECT_EQ(again->parallel.split, *fields.split);
    EXPECT_EQ(again->model.hidden_size, job.model.hidden_size);
  }
  EXPECT_GT(written, rounds.done() / 50);
}

}  // namespace
}  // namespace penstock::plan
