#include "plan/spec/auto_source.h"

#include <gmock/gmock.h>

namespace penstock::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string job(const std::string& train, const std::string& parallel, const std::string& more = "") {
  return "name: tiny\n"
         "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
         "        intermediate_size: 16, max_position_embeddings: 8}\n"
         "data: {source: /data/text.txt, sequence_length: 8}\n"
         "train: {steps: 3, " +
         train + ", dtype: float32}\nparallel: {" + parallel + "}\n" + more;
}

const std::string kSized = "global_batch_size: 12, microbatch_size: 1";
const std::string kUnsized = "global_batch_size: 12, microbatch_size: auto";

std::vector<int64_t> sizes_of(const std::string& yaml) {
  const StatusOr<std::vector<JobSpec>> jobs = jobs_to_plan(yaml);
  EXPECT_TRUE(jobs.ok()) << jobs.status();
  std::vector<int64_t> sizes;
  for (const JobSpec& each : jobs.value_or(std::vector<JobSpec>{}))
    sizes.push_back(each.train.microbatch_size);
  return sizes;
}

TEST(AutoSource, a_split_that_is_not_said_is_auto_the_others_are_not) {
  const AutoFields none = *auto_fields(job(kSized, "pipeline: 2"));
  EXPECT_TRUE(none.split);
  EXPECT_FALSE(none.schedule || none.microbatch_size);
  const AutoFields all = *auto_fields(job(kUnsized, "pipeline: 2, split: auto, schedule: auto"));
  EXPECT_TRUE(all.split && all.schedule && all.microbatch_size);
  EXPECT_FALSE(auto_fields(job(kSized, "pipeline: 2, split: ends-lighter"))->any());
  EXPECT_FALSE(auto_fields(job(kSized, "pipeline: 2, split: {layers: [2, 2]}"))->any());
}

TEST(AutoSource, what_nobody_has_planned_is_refused_and_says_who_plans) {
  const auto refusal = [](const std::string& yaml) { return message(parse_job_spec(yaml).status()); };
  EXPECT_EQ(
      refusal(job(kSized, "pipeline: 2, schedule: auto")),
      "line 6: parallel.schedule: expected a schedule's name, which `penstock submit` and `penstock up --run` plan "
      "and write in its place, found auto");
  EXPECT_EQ(
      refusal(job(kUnsized, "pipeline: 2")),
      "line 5: train.microbatch_size: expected a whole number, which `penstock submit` and `penstock up --run` plan "
      "and write in its place, found auto");
}

TEST(AutoSource, sizes_of_microbatch_are_those_that_divide_a_pipelines_sequences_within_the_bounds) {
  EXPECT_THAT(sizes_of(job(kSized, "pipeline: 2")), ElementsAre(1));
  EXPECT_THAT(sizes_of(job(kUnsized, "pipeline: 2")), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(sizes_of(job(kUnsized, "pipeline: 2, data: 3")), ElementsAre(1, 2, 4));
  // More than 16 divisors: some of them. A microbatch has 2^20 tokens at most, a step 65,536 microbatches.
  EXPECT_THAT(sizes_of(job("global_batch_size: 720, microbatch_size: auto", "pipeline: 2")),
              ElementsAre(1, 2, 4, 6, 9, 15, 20, 36, 48, 80, 120, 180, 360, 720));
  EXPECT_THAT(sizes_of(job("global_batch_size: 10395, microbatch_size: auto", "pipeline: 2")),
              ElementsAre(1, 3, 7, 11, 21, 45, 77, 135, 231, 495, 945, 1485, 3465, 10395));
  const std::vector<int64_t> largest =
      sizes_of(job("global_batch_size: 1048576, microbatch_size: auto", "pipeline: 2"));
  ASSERT_FALSE(largest.empty());
  EXPECT_EQ(largest.front(), 16);
  EXPECT_EQ(largest.back(), 131072);
}

TEST(AutoSource, a_schedule_stands_in_for_the_one_that_is_planned) {
  EXPECT_EQ(jobs_to_plan(job(kSized, "pipeline: 2, schedule: auto"))->front().parallel.schedule, "1f1b");
  const JobSpec several =
      jobs_to_plan(job(kSized, "pipeline: 2, stages_per_rank: 2, schedule: auto"))->front();
  EXPECT_EQ(several.parallel.schedule, "interleaved-1f1b");
  EXPECT_EQ(several.stages(), 4);
  EXPECT_THAT(message(jobs_to_plan(job(kUnsized, "pipelines: 2, schedule: auto")).status()),
              HasSubstr("line 6: parallel.pipelines"));
}

TEST(AutoSource, a_search_of_three_stages_a_rank_is_refused_in_the_words_of_the_file) {
  const auto jobs =
      jobs_to_plan(job(kSized, "pipeline: 2, stages_per_rank: 3, schedule: auto, schedule_options: {}"));
  EXPECT_THAT(message(jobs.status()), HasSubstr("parallel.stages_per_rank: expected 1 or 2"));
  EXPECT_THAT(message(jobs.status()), HasSubstr("schedule_options"));
  EXPECT_THAT(message(jobs.status()), Not(HasSubstr("v-auto")));
}

TEST(AutoSource, what_was_planned_stands_in_place_and_notes_at_the_end) {
  const std::string yaml = job(kUnsized, "pipeline: 2, schedule: auto", "trace: {every: 7}  # stays\n");
  const Split split = {{{ItemKind::Embedding, {}}, {ItemKind::Block, LayerIndex(0)}},
                       {{ItemKind::Block, LayerIndex(1)},
                        {ItemKind::Block, LayerIndex(2)},
                        {ItemKind::Block, LayerIndex(3)},
                        {ItemKind::Head, {}}}};
  const StatusOr<std::string> text = with_planned_fields(
      yaml,
      {.schedule = "zb-h1", .stages_per_rank = 1, .microbatch_size = 3, .split = split, .recompute = {0, 3}},
      {"because\nit is so"});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(
      *text,
      "recompute: [0, 3]\n" +
          job("global_batch_size: 12, microbatch_size: 3",
              "split: [[embedding, 0], [1, 2, 3, head]], stages_per_rank: 1, pipeline: 2, schedule: zb-h1",
              "trace: {every: 7}  # stays\n# because it is so\n"));
  EXPECT_EQ(parse_job_spec(*text)->recompute, (std::vector<int64_t>{0, 3}));
}

TEST(AutoSource, blocks_that_recompute_are_written_into_a_text_of_any_style) {
  const std::string json =
      R"({"name": "tiny", "model": {"vocab_size": 256, "hidden_size": 8, "num_hidden_layers": 4,
          "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 8},
          "data": {"source": "/data/text.txt", "sequence_length": 8},
          "train": {"steps": 3, "global_batch_size": 4, "microbatch_size": 1}})";
  const std::string block = "# a comment\n---\n" + job(kSized, "pipeline: 2") + "...\n";
  for (const std::string& yaml : {json, block}) {
    const StatusOr<std::string> text = with_planned_fields(yaml, {.recompute = {1, 2}}, {"told"});
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(parse_job_spec(*text)->recompute, (std::vector<int64_t>{1, 2}));
  }
}

TEST(AutoSource, empty_lines_and_comments_are_no_end_of_a_searchs_options) {
  const std::string head = job(kSized, "X");
  const std::string before = head.substr(0, head.find("parallel:")) + "parallel:\n  schedule: auto\n";
  const std::string options = "  schedule_options:\n    memory_limit: 3\n";
  for (const std::string between : {"", "\n", "   \n", "# far left\n", "\r\n\n  # here\n"}) {
    const StatusOr<std::string> text = with_planned_fields(
        before + options + between + "    search_seconds: 1\n\n  # of two\n  pipeline: 2\n",
        {.schedule = "zb-h1"});
    ASSERT_TRUE(text.ok()) << between << text.status();
    EXPECT_THAT(*text, HasSubstr("schedule_options:\n    {}\n\n  # of two\n  pipeline: 2\n"));
  }
}

TEST(AutoSource, options_of_a_search_stay_with_what_is_searched_for) {
  const std::string yaml = job(kSized, "pipeline: 2, schedule: auto, schedule_options: {search_seconds: 1}");
  EXPECT_EQ(jobs_to_plan(yaml)->front().parallel.schedule, "zb-auto");
  EXPECT_THAT(*with_planned_fields(yaml, {.schedule = "zb-auto"}), HasSubstr("search_seconds: 1"));
  EXPECT_THAT(*with_planned_fields(yaml, {.schedule = "zb-h1"}), HasSubstr("schedule_options: {}}"));
}

TEST(AutoSource, what_would_become_another_job_is_refused) {
  const std::string yaml = job(kSized, "pipeline: 2, schedule: auto");
  EXPECT_THAT(message(with_planned_fields(yaml, {.schedule = "1f1c"}).status()), HasSubstr("1f1b"));
  EXPECT_FALSE(with_planned_fields(yaml, {.schedule = "1f1b", .split = Split{}}).ok());
  EXPECT_THAT(message(with_planned_fields("name: tiny\n", {.schedule = "1f1b"}).status()),
              HasSubstr("write it there: schedule: 1f1b"));
}

}  // namespace
}  // namespace penstock::plan
