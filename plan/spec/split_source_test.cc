#include "plan/spec/split_source.h"

#include <gmock/gmock.h>

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;

std::string job(const std::string& parallel) {
  return "name: tiny\n"
         "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 4, num_attention_heads: 2,\n"
         "        intermediate_size: 16, max_position_embeddings: 8}\n"
         "data: {source: /data/text.txt, sequence_length: 8}\n"
         "train: {steps: 3, global_batch_size: 4, microbatch_size: 1, dtype: float32}\n" +
         parallel + "trace: {every: 7}  # stays\n";
}

const Split kWanted = {{{ItemKind::Embedding, {}},
                        {ItemKind::Block, LayerIndex(0)},
                        {ItemKind::Block, LayerIndex(1)},
                        {ItemKind::Block, LayerIndex(2)}},
                       {{ItemKind::Block, LayerIndex(3)}, {ItemKind::Head, {}}}};
constexpr const char* kText = "[[embedding, 0, 1, 2], [3, head]]";

TEST(SplitSource, split_is_replaced_however_it_is_written_and_the_rest_stays) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"parallel: {pipeline: 2, split: auto, schedule: gpipe}\n",
       std::string("parallel: {pipeline: 2, split: ") + kText + ", schedule: gpipe}\n"},
      {"parallel: {pipeline: 2, schedule: gpipe}  # two\n",
       std::string("parallel: {split: ") + kText + ", pipeline: 2, schedule: gpipe}  # two\n"},
      {"parallel:\n  pipeline: 2\n  split: \"auto\"  # for now\n",
       std::string("parallel:\n  pipeline: 2\n  split: ") + kText + "  # for now\n"},
      {"parallel:\n  # where it runs\n  pipeline: 2\n",
       std::string("parallel:\n  # where it runs\n  split: ") + kText + "\n  pipeline: 2\n"},
      {"parallel:\n  pipeline: 2\n  split: {layers: [2, 2]}\n",
       std::string("parallel:\n  pipeline: 2\n  split: ") + kText + "\n"},
      {"parallel:\n  split: [[embedding, 0],  # ] first\n    [1, 2, 3, head]]\n  pipeline: 2\n",
       std::string("parallel:\n  split: ") + kText + "\n  pipeline: 2\n"},
      {"parallel:\n  split:\n    - [embedding, 0]\n    - [1, 2, 3, head]\n  pipeline: 2\n",
       std::string("parallel:\n  split:\n      ") + kText + "\n  pipeline: 2\n"},
      {"parallel:\n  split:\n  - [embedding, 0]\n  - [1, 2, 3, head]\n  pipeline: 2\n",
       std::string("parallel:\n  split:\n    ") + kText + "\n  pipeline: 2\n"},
      {"parallel:\n  split:\n    layers: [1,\n             3]\n  pipeline: 2\n",
       std::string("parallel:\n  split:\n    ") + kText + "\n  pipeline: 2\n"},
  };
  for (const auto& [before, after] : cases) {
    const StatusOr<std::string> text = with_split(job(before), kWanted);
    ASSERT_TRUE(text.ok()) << before << text.status();
    EXPECT_EQ(*text, job(after));
    EXPECT_EQ(parse_job_spec(*text)->parallel.split, kWanted);
  }
}

TEST(SplitSource, text_without_a_place_for_it_is_refused_with_the_split) {
  EXPECT_THAT(message(with_split(job(""), kWanted).status()), HasSubstr(kText));
  // A split of another model would not come out of the text.
  Split other = kWanted;
  other[1].erase(other[1].begin());
  EXPECT_FALSE(with_split(job("parallel: {pipeline: 2}\n"), other).ok());
  EXPECT_FALSE(with_split("parallel: [", kWanted).ok());
}

TEST(ItemsText, blocks_behind_one_another_are_a_range) {
  ModelSpec model;
  model.num_hidden_layers = 3;
  const std::vector<Item> items = model_items(model);
  EXPECT_EQ(items_text(items), "embedding 0-2 head");
  EXPECT_EQ(items_text({items[1]}), "0");
}

}  // namespace
}  // namespace penstock::plan
