#include "worker/checkpoint/weights.h"

#include <gmock/gmock.h>

#include <cstring>

#include "base/safetensors/folder.h"
#include "base/safetensors/testing/written.h"

namespace penstock::worker {
namespace {

using penstock::testing::TemporaryFolder;
using penstock::testing::write_tensors;
using penstock::testing::WrittenTensor;
using ::testing::HasSubstr;

plan::ModelSpec small_model() {
  plan::ModelSpec model;
  model.vocab_size = 7;
  model.hidden_size = 4;
  model.num_hidden_layers = 2;
  model.num_attention_heads = 2;
  model.num_key_value_heads = 1;
  model.intermediate_size = 6;
  model.max_position_embeddings = 8;
  return model;
}

// The first `items` of the model's items, or those behind them.
ParameterStore part(const plan::ModelSpec& model, size_t items, bool front) {
  std::vector<plan::Item> all = plan::model_items(model);
  if (front) {
    all.resize(items);
  } else {
    all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(items));
  }
  return ParameterStore::create(model, all).value();
}

std::vector<float> values(const Parameter& parameter) {
  const float* first = parameter.weight.f32();
  return {first, first + parameter.weight.elements()};
}

class WeightsTest : public ::testing::Test {
 protected:
  void SetUp() override { folder.write(".attempt-1", ""); }
  std::string load_problem(const plan::ModelSpec& model) {
    const ParameterStore store = part(model, 2, /*front=*/true);
    const Status loaded = load_weights(folder.path(), model, store);
    return loaded.ok() ? "" : message(loaded);
  }
  // A folder that two ranks wrote.
  void write_folder(const plan::ModelSpec& model) {
    std::map<std::string, std::string> map;
    for (const int rank : {0, 1}) {
      ParameterStore store = part(model, 2, rank == 0);
      store.initialise(model, 3);
      const Status written = write_weights(place, RankIndex(rank), 2, store.parameters());
      ASSERT_TRUE(written.ok()) << written;
      for (const Parameter& parameter : store.parameters())
        map[parameter.spec.name] = tensor_file_name("rank", rank, 2);
    }
    folder.write(kTensorIndexFile, format_tensor_index(map, 0));
  }
  TemporaryFolder folder{"worker_weights"};
  const WeightsPlace place{folder.path(), ".attempt-1"};
};

TEST_F(WeightsTest, what_ranks_wrote_other_ranks_load_bit_for_bit) {
  // The next job may cut the model elsewhere: names are the model's, so no layout can go stale in the files.
  const plan::ModelSpec model = small_model();
  write_folder(model);
  ParameterStore expected = part(model, 4, true);
  expected.initialise(model, 3);
  for (const size_t cut : {1u, 2u, 3u}) {
    for (const bool front : {true, false}) {
      const ParameterStore store = part(model, cut, front);
      const Status loaded = load_weights(folder.path(), model, store);
      ASSERT_TRUE(loaded.ok()) << loaded;
      for (const Parameter& parameter : store.parameters())
        EXPECT_EQ(values(parameter), values(expected.at(parameter.spec.name))) << parameter.spec.name;
    }
  }
}

TEST_F(WeightsTest, tied_matrix_is_written_by_its_owner_and_loaded_by_both) {
  // A copy of its own on the last rank is no tensor of the folder: Hugging Face knows one.
  plan::ModelSpec model = small_model();
  model.tie_word_embeddings = true;
  write_folder(model);
  const auto tensors = TensorFolder::open(folder.path());
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->tensors(), plan::model_parameters(model).size());
  EXPECT_EQ(tensors->files()[1].find("lm_head.weight"), nullptr);
  EXPECT_EQ(tensors->files()[1].find("model.embed_tokens.weight"), nullptr);

  const ParameterStore back = part(model, 2, false);
  ASSERT_TRUE(load_weights(folder.path(), model, back).ok());
  ParameterStore front = part(model, 2, true);
  front.initialise(model, 3);
  EXPECT_EQ(values(*back.tied_head()), values(front.at("model.embed_tokens.weight")));
}

TEST_F(WeightsTest, every_rank_refuses_a_folder_that_is_not_of_the_model) {
  // Also where the tensor is another rank's. Elsewhere a checkpoint of another pipeline left layers at their random
  // start, and nobody was told (swiss-ai/Megatron-LM PR 116).
  const plan::ModelSpec model = small_model();
  write_folder(model);
  EXPECT_EQ(load_problem(model), "");
  plan::ModelSpec other = model;
  other.num_hidden_layers = 3;
  EXPECT_THAT(load_problem(other),
              HasSubstr("tensor model.layers.2.input_layernorm.weight: expected of shape [4], "
                        "found none"));
  other.num_hidden_layers = 1;
  EXPECT_THAT(load_problem(other),
              HasSubstr("rank-00001-of-00002.safetensors: expected the 12 tensors of the model, "
                        "found 9 beyond them: model.layers.1.input_layernorm.weight"));
  other = model;
  other.vocab_size = 8;
  EXPECT_THAT(load_problem(other), HasSubstr("tensor model.embed_tokens.weight at offset"));
  EXPECT_THAT(load_problem(other), HasSubstr("shape: expected [8, 4], found [7, 4]"));
  other = model;
  other.tie_word_embeddings = true;
  EXPECT_THAT(load_problem(other), HasSubstr("lm_head.weight"));
}

TEST_F(WeightsTest, folder_that_is_not_the_coordinators_is_refused_before_the_first_step) {
  EXPECT_TRUE(check_weights_place(place, RankIndex(0), "the weights").ok());
  EXPECT_FALSE(std::filesystem::exists(folder.path(".probe-0.partial")));
  const Status other = check_weights_place({folder.path(), ".attempt-2"}, RankIndex(0), "the weights");
  EXPECT_EQ(other.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(message(other), HasSubstr("is not the coordinator's here (it holds no .attempt-2)"));
  EXPECT_THAT(message(check_weights_place({folder.path("none"), ".attempt-1"}, RankIndex(0), "the weights")),
              HasSubstr("none"));
}

TEST_F(WeightsTest, folder_that_has_gone_is_named_when_the_weights_are_written) {
  const ParameterStore store = part(small_model(), 2, true);
  EXPECT_THAT(message(write_weights({folder.path("none"), "x"}, RankIndex(0), 2, store.parameters())),
              HasSubstr("none/rank-00000-of-00002.safetensors cannot be made"));
}

TEST_F(WeightsTest, a_rank_reads_its_share_of_the_experts_alone) {
  plan::ModelSpec model = small_model();
  model.moe.num_experts = 4;
  model.moe.num_experts_per_tok = 1;
  model.moe.moe_intermediate_size = 6;
  model.moe.layers = {0, 1};
  write_folder(model);
  ParameterStore expected = part(model, 4, true);
  expected.initialise(model, 3);
  const ParameterStore share = ParameterStore::create(model, plan::model_items(model),
                                                      kernels::DataType::Float32, {.first = 1, .end = 3})
                                   .value();
  ASSERT_EQ(share.parameters().size(), expected.parameters().size() - 2 * 2 * 3);
  const Status loaded = load_weights(folder.path(), model, share);
  ASSERT_TRUE(loaded.ok()) << loaded;
  for (const Parameter& parameter : share.parameters())
    EXPECT_EQ(values(parameter), values(expected.at(parameter.spec.name))) << parameter.spec.name;
}

}  // namespace
}  // namespace penstock::worker
