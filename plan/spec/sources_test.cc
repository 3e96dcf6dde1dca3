#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/spec/job_spec.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

std::string absolute(const std::string& yaml) {
  const StatusOr<std::string> rewritten = with_absolute_sources(yaml, "/jobs");
  EXPECT_TRUE(rewritten.ok()) << rewritten.status();
  return rewritten.ok() ? *rewritten : "";
}

TEST(AbsoluteSources, a_relative_path_is_put_below_the_directory_of_the_job_file) {
  EXPECT_EQ(absolute("data:\n  source: corpus.txt  # the text\n  sequence_length: 8\n"),
            "data:\n  source: \"/jobs/corpus.txt\"  # the text\n  sequence_length: 8\n");
  EXPECT_EQ(absolute("data: {source: ../a/*.txt, format: text}\n"),
            "data: {source: \"/a/*.txt\", format: text}\n");
}

TEST(AbsoluteSources, an_absolute_path_and_a_job_without_data_stay_as_they_are) {
  for (const char* text : {"data: {source: /a/b.txt}\n", "name: a\n", "", "data: 3\n",
                           "data: {format: text}\n", "data: {source: {a: b}}\n"}) {
    EXPECT_EQ(absolute(text), text);
  }
}

TEST(AbsoluteSources, every_path_of_a_list_is_rewritten_however_it_is_quoted) {
  EXPECT_EQ(absolute("data:\n"
                     "  source:\n"
                     "    - 'it''s.txt'\n"
                     "    - \"a \\\"b\\\".txt\"\n"
                     "    - /kept.txt\n"
                     "    - two words.txt\n"),
            "data:\n"
            "  source:\n"
            "    - \"/jobs/it's.txt\"\n"
            "    - \"/jobs/a \\\"b\\\".txt\"\n"
            "    - /kept.txt\n"
            "    - \"/jobs/two words.txt\"\n");
}

TEST(AbsoluteSources, weighted_sources_validation_and_the_model_are_paths_too) {
  EXPECT_EQ(absolute("model: {from: smol, vocab_size: 8}\n"
                     "data:\n"
                     "  source: [{path: a.npy, weight: 0.7}, {weight: 0.3, path: 'b c.npy'}]\n"
                     "  format: npy\n"
                     "validation:\n"
                     "  source:\n"
                     "    path: held/*.npy\n"),
            "model: {from: \"/jobs/smol\", vocab_size: 8}\n"
            "data:\n"
            "  source: [{path: \"/jobs/a.npy\", weight: 0.7}, {weight: 0.3, path: \"/jobs/b c.npy\"}]\n"
            "  format: npy\n"
            "validation:\n"
            "  source:\n"
            "    path: \"/jobs/held/*.npy\"\n");
}

TEST(AbsoluteSources, non_ascii_text_before_a_path_does_not_shift_it) {
  // Offsets count bytes; a parser that counts characters would cut the path in half.
  EXPECT_EQ(absolute("# ä日本🙂\nname: é\ndata: {source: ü.txt}\n"),
            "# ä日本🙂\nname: é\ndata: {source: \"/jobs/ü.txt\"}\n");
  EXPECT_EQ(absolute("name: a\r\ndata:\r\n  source: b.txt\r\n"),
            "name: a\r\ndata:\r\n  source: \"/jobs/b.txt\"\r\n");
}

TEST(AbsoluteSources, the_result_reads_as_the_same_job_with_every_key_on_its_line) {
  const std::string yaml =
      "name: small\n"
      "data: {source: [a.txt, 'b c.txt'], sequence_length: 16}\n"
      "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2,\n"
      "        intermediate_size: 8, max_position_embeddings: 16}\n"
      "train: {steps: 1, global_batch_size: 1, microbatch_size: 1}\n";
  const StatusOr<JobSpec> before = parse_job_spec(yaml);
  const StatusOr<JobSpec> after = parse_job_spec(absolute(yaml));
  ASSERT_TRUE(before.ok() && after.ok()) << after.status();
  EXPECT_EQ(after->lines, before->lines);
  EXPECT_THAT(after->data.sources, ::testing::ElementsAre("/jobs/a.txt", "/jobs/b c.txt"));
}

TEST(AbsoluteSources, folder_of_checkpoints_is_a_path_too) {
  EXPECT_EQ(absolute("checkpoint: {directory: run/one, every: 5}\n"),
            "checkpoint: {directory: \"/jobs/run/one\", every: 5}\n");
}

TEST(AbsoluteSources, a_path_over_several_lines_is_refused) {
  EXPECT_EQ(message(with_absolute_sources("data:\n  source: a\n    b.txt\n", "/jobs").status()),
            "line 2: data.source: expected a path on one line, found a b.txt");
  EXPECT_THAT(message(with_absolute_sources("data:\n  source: |\n    b.txt\n", "/jobs").status()),
              HasSubstr("expected a path on one line"));
}

TEST(AbsoluteSources, a_text_that_is_no_yaml_and_a_relative_directory_are_refused) {
  EXPECT_THAT(message(with_absolute_sources("data: [", "/jobs").status()), HasSubstr("expected YAML"));
  EXPECT_EQ(message(with_absolute_sources("data: 1", "jobs").status()),
            "directory of the job file: expected an absolute path, found \"jobs\"");
}

}  // namespace
}  // namespace penstock::plan
