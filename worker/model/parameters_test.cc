#include "worker/model/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"

namespace penstock::worker {
namespace {

plan::ModelSpec model() {
  plan::ModelSpec model;
  model.vocab_size = 17;
  model.hidden_size = 12;
  model.num_hidden_layers = 3;
  model.num_attention_heads = 3;
  model.num_key_value_heads = 1;
  model.intermediate_size = 20;
  return model;
}

const plan::Item kEmbedding{plan::ItemKind::Embedding, {}};
const plan::Item kHead{plan::ItemKind::Head, {}};
plan::Item block(int64_t layer) {
  return {plan::ItemKind::Block, LayerIndex(layer)};
}

ParameterStore initialised(const std::vector<plan::Item>& items, int64_t seed) {
  ParameterStore store = ParameterStore::create(model(), items).value();
  store.initialise(model(), seed);
  return store;
}

std::vector<float> copy_of(kernels::TensorView tensor) {
  return {tensor.f32(), tensor.f32() + tensor.elements()};
}

TEST(ParameterStore, names_and_shapes_are_those_of_hugging_face) {
  // Checkpoints exchange weights by these names.
  const ParameterStore store = ParameterStore::create(model(), plan::model_items(model())).value();
  ASSERT_EQ(store.parameters().size(), 3u + 3 * 9);
  EXPECT_EQ(store.parameters().front().spec.name, "model.embed_tokens.weight");
  EXPECT_EQ(store.parameters().back().spec.name, "lm_head.weight");
  const kernels::TensorView key = store.at("model.layers.2.self_attn.k_proj.weight").weight;
  EXPECT_EQ(key.size(0), 4);
  EXPECT_EQ(key.size(1), 12);
  EXPECT_EQ(store.at("model.layers.0.mlp.down_proj.weight").weight.size(1), 20);
  EXPECT_EQ(store.at("model.norm.weight").weight.rank(), 1);
}

TEST(ParameterStore, tensors_are_aligned_and_apart) {
  const ParameterStore store = ParameterStore::create(model(), plan::model_items(model())).value();
  std::set<uintptr_t> begins;
  for (const Parameter& parameter : store.parameters()) {
    for (const kernels::TensorView& tensor : {parameter.weight, parameter.gradient}) {
      const auto begin = reinterpret_cast<uintptr_t>(tensor.data());
      EXPECT_EQ(begin % 64, 0u) << parameter.spec.name;
      begins.insert(begin);
      std::memset(tensor.data(), 0x7f, static_cast<size_t>(tensor.bytes()));
    }
  }
  EXPECT_EQ(begins.size(), 2 * store.parameters().size());
  // 48-byte vectors, 816-byte embedding, 576-, 192-, 960-byte matrices, rounded up to 64.
  const int64_t per_block = 2 * 64 + 576 + 192 + 192 + 576 + 3 * 960;
  EXPECT_EQ(store.parameter_bytes(), 2 * 832 + 64 + 3 * per_block);
  EXPECT_EQ(store.gradient_bytes(), store.parameter_bytes());
}

TEST(ParameterStore, initial_values_do_not_depend_on_placement) {
  // The same model on one rank and on four must start from the same bits.
  const ParameterStore whole = initialised(plan::model_items(model()), 1);
  for (const auto& items :
       std::vector<std::vector<plan::Item>>{{kEmbedding, block(2)}, {block(0)}, {block(1), kHead}}) {
    const ParameterStore part = initialised(items, 1);
    for (const Parameter& parameter : part.parameters()) {
      const Parameter& same = whole.at(parameter.spec.name);
      EXPECT_EQ(copy_of(parameter.weight), copy_of(same.weight)) << parameter.spec.name;
      EXPECT_EQ(parameter.spec.index, same.spec.index);
    }
  }
}

TEST(ParameterStore, a_share_of_the_experts_has_the_bits_of_all_of_them) {
  plan::ModelSpec experts = model();
  experts.moe.num_experts = 4;
  experts.moe.num_experts_per_tok = 2;
  experts.moe.moe_intermediate_size = 8;
  experts.moe.layers = {1};
  ParameterStore whole = ParameterStore::create(experts, plan::model_items(experts)).value();
  whole.initialise(experts, 1);
  ParameterStore share =
      ParameterStore::create(experts, {block(1)}, kernels::DataType::Float32, {.first = 2, .end = 4}).value();
  share.initialise(experts, 1);
  EXPECT_EQ(share.parameters().size(), whole.of_items({block(1)}).size() - 2 * 3);
  for (const Parameter& parameter : share.parameters()) {
    const Parameter& same = whole.at(parameter.spec.name);
    EXPECT_EQ(copy_of(parameter.weight), copy_of(same.weight)) << parameter.spec.name;
    EXPECT_EQ(parameter.spec.index, same.spec.index);
  }
  EXPECT_EQ(share.of_layer(LayerIndex(1), "mlp.experts.3.up_proj").packed.first_row, 8);
  EXPECT_DEATH(share.of_layer(LayerIndex(1), "mlp.experts.1.up_proj"), "not a parameter of this rank");
}

TEST(ParameterStore, items_in_any_order_come_in_model_order) {
  // A rank of an interleaved schedule holds stages that are not neighbours.
  const ParameterStore store = ParameterStore::create(model(), {kHead, block(2), block(0)}).value();
  for (size_t i = 1; i < store.parameters().size(); ++i) {
    EXPECT_LT(store.parameters()[i - 1].spec.index, store.parameters()[i].spec.index);
  }
}

TEST(ParameterStore, norms_start_at_one_and_matrices_at_the_initializer_range) {
  const ParameterStore store = initialised({block(0)}, 1);
  EXPECT_THAT(copy_of(store.at("model.layers.0.input_layernorm.weight").weight), ::testing::Each(1.0f));
  double squares = 0;
  const std::vector<float> gate = copy_of(store.at("model.layers.0.mlp.gate_proj.weight").weight);
  for (const float value : gate) squares += value * value;
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(gate.size())), 0.02, 0.003);
}

TEST(ParameterStore, a_digest_depends_on_the_bytes_alone) {
  const ParameterStore here = initialised({block(1)}, 1);
  const ParameterStore elsewhere = initialised({kEmbedding, block(1), kHead}, 1);
  const ParameterStore other_seed = initialised({block(1)}, 2);
  const std::vector<WeightDigest> digests = here.digests();
  const std::vector<WeightDigest> same = elsewhere.digests();
  const std::vector<WeightDigest> others = other_seed.digests();
  ASSERT_EQ(digests.size(), 9u);
  for (size_t i = 0; i < digests.size(); ++i) {
    EXPECT_EQ(digests[i].parameter, same[i + 1].parameter);
    EXPECT_EQ(digests[i].digest, same[i + 1].digest);
    const bool norm = here.parameters()[i].spec.initialised_to_one;
    EXPECT_EQ(digests[i].digest == others[i].digest, norm) << here.parameters()[i].spec.name;
  }
}

TEST(ParameterStore, a_digest_is_xxh3_128_most_significant_byte_first) {
  // Twelve ones: what other implementations of the hash print for the same 48 bytes.
  const ParameterStore store = initialised({block(0)}, 1);
  const WeightDigest ones = store.digests().front();
  EXPECT_EQ(hex(ones.digest), "1af8c9b392cf6ed8a31ba90982781b24");
}

TEST(ParameterStore, one_flipped_bit_changes_the_digest) {
  const ParameterStore store = initialised({block(0)}, 1);
  const std::vector<WeightDigest> before = store.digests();
  static_cast<uint8_t*>(store.parameters()[3].weight.data())[5] ^= 1;
  const std::vector<WeightDigest> after = store.digests();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].digest == after[i].digest, i != 3);
}

TEST(ParameterStore, a_tied_matrix_has_two_accumulators_and_one_owner) {
  plan::ModelSpec tied = model();
  tied.tie_word_embeddings = true;
  ParameterStore both = ParameterStore::create(tied, plan::model_items(tied)).value();
  both.initialise(tied, 1);
  EXPECT_EQ(both.parameters().back().spec.name, "model.norm.weight");
  ASSERT_NE(both.tied_head(), nullptr);
  EXPECT_EQ(both.tied_head()->weight.data(), both.tied_embedding()->weight.data());
  EXPECT_NE(both.tied_head()->gradient.data(), both.tied_embedding()->gradient.data());
  EXPECT_EQ(both.gradient_bytes(), both.parameter_bytes() + 832);

  ParameterStore head = ParameterStore::create(tied, {kHead}).value();
  head.initialise(tied, 1);
  EXPECT_EQ(head.tied_embedding(), nullptr);
  EXPECT_EQ(head.parameters().size(), 1u);  // the copy is not its own: not in norm, digest or optimizer
  EXPECT_EQ(copy_of(head.head_weight().weight), copy_of(both.head_weight().weight));
  EXPECT_EQ(ParameterStore::create(tied, {kEmbedding}).value().tied_head(), nullptr);
}

TEST(ParameterStore, gradients_can_be_cleared) {
  kernels::ComputeThreads threads(1);
  const auto operators = kernels::make_cpu_operators(threads);
  ParameterStore store = initialised({block(0)}, 1);
  for (const Parameter& parameter : store.parameters()) operators->fill(parameter.gradient, 3);
  store.zero_gradients(*operators);
  for (const Parameter& parameter : store.parameters()) {
    EXPECT_THAT(copy_of(parameter.gradient), ::testing::Each(0.0f)) << parameter.spec.name;
  }
}

}  // namespace
}  // namespace penstock::worker
