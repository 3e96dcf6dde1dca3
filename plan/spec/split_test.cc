#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spec/job_spec.h"

namespace penstock::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelSpec model_of(int64_t layers) {
  ModelSpec model;
  model.num_hidden_layers = layers;
  return model;
}

std::vector<std::string> lines_of(const Split& split) {
  std::vector<std::string> lines;
  for (const std::vector<Item>& items : split) {
    std::string line;
    for (const Item& item : items) line += (line.empty() ? "" : " ") + to_string(item);
    lines.push_back(line);
  }
  return lines;
}

std::vector<size_t> sizes_of(const Split& split) {
  std::vector<size_t> sizes;
  for (const std::vector<Item>& items : split) sizes.push_back(items.size());
  return sizes;
}

// The split stands on line 6.
std::string job_with(const std::string& split, int blocks = 4, int stages = 3) {
  return fmt::format(
      "name: split\n"
      "model: {{vocab_size: 256, hidden_size: 8, num_hidden_layers: {}, num_attention_heads: 2,\n"
      "        intermediate_size: 8, max_position_embeddings: 16}}\n"
      "data: {{source: a.txt, sequence_length: 16}}\n"
      "train: {{steps: 1, global_batch_size: 4, microbatch_size: 1}}\n"
      "parallel: {{pipeline: {}, split: {}}}\n",
      blocks, stages, split);
}

std::vector<std::string> split_of(const std::string& split) {
  const StatusOr<JobSpec> spec = parse_job_spec(job_with(split));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.ok() ? lines_of(spec->parallel.split) : std::vector<std::string>{};
}

std::string refusal_of(const std::string& split) {
  const StatusOr<JobSpec> spec = parse_job_spec(job_with(split));
  EXPECT_FALSE(spec.ok()) << split;
  return message(spec.status());
}

TEST(Split, automatic_gives_equal_counts_with_the_remainder_in_the_middle) {
  EXPECT_THAT(lines_of(automatic_split(model_of(4), 3)), ElementsAre("embedding 0", "1 2", "3 head"));
  EXPECT_THAT(sizes_of(automatic_split(model_of(8), 8)), ElementsAre(1, 1, 1, 2, 2, 1, 1, 1));
  EXPECT_THAT(sizes_of(automatic_split(model_of(9), 4)), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(sizes_of(automatic_split(model_of(5), 4)), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(sizes_of(automatic_split(model_of(3), 4)), ElementsAre(1, 2, 1, 1));
  EXPECT_THAT(sizes_of(automatic_split(model_of(6), 1)), ElementsAre(8));
  EXPECT_THAT(sizes_of(automatic_split(model_of(1), 3)), ElementsAre(1, 1, 1));
}

TEST(Split, every_automatic_split_holds_every_item_once_in_model_order) {
  // 30 layers on 4 ranks became 28 (NVIDIA/Megatron-LM issue 1304), a remainder was dropped (pytorch/torchtitan PR 963).
  for (int layers = 1; layers <= 30; ++layers) {
    for (int stages = 1; stages <= layers + 2; ++stages) {
      EXPECT_TRUE(check_split(model_of(layers), automatic_split(model_of(layers), stages)).ok());
      if (stages > layers + 1) continue;
      EXPECT_TRUE(check_split(model_of(layers), last_lighter_split(model_of(layers), stages)).ok());
    }
  }
}

TEST(Split, last_lighter_leaves_one_block_out_of_the_last_stage) {
  // The recipe that it is named for: 31 blocks on the split points of 32, 16 stages.
  std::vector<size_t> sizes = sizes_of(last_lighter_split(model_of(31), 16));
  EXPECT_EQ(sizes.front(), 3u);  // embedding and 2 blocks
  EXPECT_EQ(sizes.back(), 2u);   // 1 block and head
  for (size_t stage = 1; stage < 15; ++stage) EXPECT_EQ(sizes[stage], 2u);
}

TEST(Split, the_baselines_are_known_by_name) {
  EXPECT_THAT(split_of("auto"), ElementsAre("embedding 0", "1 2", "3 head"));
  EXPECT_THAT(split_of("ends-lighter"), ElementsAre("embedding 0", "1 2", "3 head"));
  EXPECT_THAT(split_of("last-lighter"), ElementsAre("embedding 0 1", "2 3", "head"));
}

TEST(Split, counts_of_blocks_and_lists_of_items_are_taken_as_they_stand) {
  EXPECT_THAT(split_of("{layers: [0, 1, 3]}"), ElementsAre("embedding", "0", "1 2 3 head"));
  EXPECT_THAT(split_of("[[embedding, 0, 1, 2], [3], [head]]"), ElementsAre("embedding 0 1 2", "3", "head"));
}

TEST(Split, a_list_that_loses_repeats_or_reorders_an_item_is_refused_at_its_place) {
  EXPECT_EQ(refusal_of("[[embedding, 0], [2, 3], [head]]"),
            "line 6: parallel.split[1][0]: expected 1 next in model order, found 2");
  EXPECT_EQ(refusal_of("[[embedding, 0], [1, 2], [2, 3, head]]"),
            "line 6: parallel.split[2][0]: expected 3 next in model order, found 2 again");
  EXPECT_EQ(refusal_of("[[embedding, 0], [2, 1], [3, head]]"),
            "line 6: parallel.split[1][0]: expected 1 next in model order, found 2");
  EXPECT_EQ(refusal_of("[[embedding, 0], [1, 2], [3]]"),
            "line 6: parallel.split[2]: expected every item; head is missing, found 5 of 6 items");
  EXPECT_EQ(refusal_of("[[embedding, 0], [1, 2, 3], [4, head]]"),
            "line 6: parallel.split[2][0]: expected head next in model order, found 4 (the model has no such "
            "block)");
  EXPECT_EQ(refusal_of("[[embedding, 0], [1, 2, 3, head], [head]]"),
            "line 6: parallel.split[2][0]: expected the end next in model order, found head again");
}

TEST(Split, an_empty_stage_is_refused) {
  EXPECT_EQ(refusal_of("[[embedding, 0, 1], [], [2, 3, head]]"),
            "line 6: parallel.split[1]: expected at least one item in every stage, found none");
  EXPECT_EQ(refusal_of("{layers: [2, 0, 2]}"),
            "line 6: parallel.split.layers[1]: expected a whole number from 1 to 4, found 0");
}

TEST(Split, another_number_of_stages_is_refused) {
  EXPECT_EQ(refusal_of("[[embedding, 0, 1], [2, 3, head]]"),
            "line 6: parallel.split: expected a list of 3, one entry a stage (pipeline x stages_per_rank), "
            "found a list of 2");
  EXPECT_EQ(refusal_of("{layers: [2, 2]}"),
            "line 6: parallel.split.layers: expected a list of 3, one entry a stage (pipeline x "
            "stages_per_rank), found a list of 2");
  EXPECT_EQ(refusal_of("{layers: [1, 1, 1]}"),
            "line 6: parallel.split.layers: expected 4 blocks in all, found 3");
}

TEST(Split, counts_that_leave_blocks_out_are_refused) {
  // A first stage of 11 and a last one of 13 of 48 layers trained those 24 alone (NVIDIA/Megatron-LM issue 2718).
  EXPECT_EQ(message(parse_job_spec(job_with("{layers: [11, 13]}", 48, 2)).status()),
            "line 6: parallel.split.layers: expected 48 blocks in all, found 24");
}

TEST(Split, a_value_of_another_shape_is_refused) {
  EXPECT_EQ(refusal_of("atuo"),
            "line 6: parallel.split: expected auto, last-lighter, ends-lighter, {layers: [blocks per stage]} "
            "or a list of items per stage, found atuo; did you mean auto?");
  EXPECT_EQ(refusal_of("[[embeding, 0], [1, 2], [3, head]]"),
            "line 6: parallel.split[0][0]: expected embedding, head or the number of a block, found "
            "embeding; did you mean embedding?");
  EXPECT_EQ(refusal_of("[[embedding, -1], [1, 2], [3, head]]"),
            "line 6: parallel.split[0][1]: expected embedding, head or the number of a block, found -1");
  EXPECT_EQ(refusal_of("[embedding, [1, 2], [3, head]]"),
            "line 6: parallel.split[0]: expected a list of items, as [embedding, 0], found embedding");
  EXPECT_EQ(refusal_of("{layers: many}"),
            "line 6: parallel.split.layers: expected a list of 3, one entry a stage (pipeline x "
            "stages_per_rank), found many");
  EXPECT_EQ(refusal_of(""),
            "line 6: parallel.split: expected auto or a list of items per stage, found nothing");
  EXPECT_THAT(refusal_of("{layer: [1, 2, 1]}"), HasSubstr("did you mean layers?"));
}

TEST(CheckSplit, names_the_stage_that_is_wrong) {
  // A split that arrives over the wire did not pass parse_job_spec.
  Split split = automatic_split(model_of(4), 3);
  std::swap(split[0], split[1]);
  EXPECT_EQ(message(check_split(model_of(4), split)),
            "split[0]: expected embedding next in model order, found 1");
  EXPECT_EQ(message(check_split(model_of(4), {})), "split: expected at least one stage, found none");
}

TEST(Item, its_text_reads_back_and_nothing_else_does) {
  for (const Item& item : model_items(model_of(12))) {
    const StatusOr<Item> parsed = parse_item(to_string(item));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, item);
  }
  for (const char* text : {"", " 1", "+1", "-1", "01", "1x", "99999999999", "Head"}) {
    EXPECT_FALSE(parse_item(text).ok()) << text;
  }
}

}  // namespace
}  // namespace penstock::plan
