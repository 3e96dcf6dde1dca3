#include "worker/model/weight_versions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

plan::ModelSpec model() {
  plan::ModelSpec model;
  model.vocab_size = 17;
  model.hidden_size = 12;
  model.num_hidden_layers = 1;
  model.num_attention_heads = 3;
  model.num_key_value_heads = 1;
  model.intermediate_size = 20;
  return model;
}

// A rank whose every weight is 1 + v in version v.
class WeightVersionsTest : public ::testing::Test {
 protected:
  void hold(WeightVersions::Kept kept) {
    write(1);
    store_.pack(*operators_);
    versions_.emplace(WeightVersions::create(kept, store_, *operators_).value());
  }

  void write(float value) {
    for (const Parameter& parameter : store_.parameters()) operators_->fill(parameter.weight, value);
  }

  // An optimizer step that makes every weight `value`.
  void step_to(float value) {
    versions_->prepare();
    write(value);
    store_.pack(*operators_);
    versions_->publish();
  }

  // What computations read now: a norm, and the matrices through a product of each direction. All the same, or 0.
  float seen() {
    const float norm = store_.at("model.norm.weight").value.f32()[0];
    for (const char* name : {"model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.down_proj.weight",
                             "lm_head.weight"}) {
      if (forward_product(store_.at(name)) != norm || backward_product(store_.at(name)) != norm) return 0;
    }
    return norm;
  }
  float table() { return store_.at("model.embed_tokens.weight").value.f32()[5]; }

  float read(int version, Pass pass) {
    const Status status = versions_->read(version, pass);
    return status.ok() ? seen() : -1;
  }

  // Weights are equal, so that x weight^T of ones is inner times one of them.
  float forward_product(const Parameter& parameter) {
    const kernels::PackedWeight& weight = parameter.packed.weight;
    return product(weight.in, weight.out, [&](kernels::TensorView ones, kernels::TensorView result) {
      operators_->linear(ones, weight, result);
    });
  }
  float backward_product(const Parameter& parameter) {
    const kernels::PackedWeight& weight = parameter.packed.weight;
    return product(weight.out, weight.in, [&](kernels::TensorView ones, kernels::TensorView result) {
      operators_->linear_input_gradient(ones, weight, result);
    });
  }
  template <typename Multiply>
  float product(int64_t inner, int64_t columns, Multiply&& multiply) {
    std::vector<float> ones(static_cast<size_t>(2 * inner), 1), result(static_cast<size_t>(2 * columns));
    multiply({ones.data(), kernels::DataType::Float32, {2, inner}},
             {result.data(), kernels::DataType::Float32, {2, columns}});
    return result.back() / static_cast<float>(inner);
  }

  kernels::ComputeThreads threads_{1};
  std::unique_ptr<kernels::Operators> operators_ = kernels::make_cpu_operators(threads_);
  ParameterStore store_ = ParameterStore::create(model(), plan::model_items(model())).value();
  std::optional<WeightVersions> versions_;
};

TEST_F(WeightVersionsTest, each_version_that_is_held_reads_as_it_was_made) {
  // Through several turns of the rings, in any order of reading.
  hold({.by_all = 3, .by_forwards = 2, .updates = 100});
  for (int newest = 0; newest < 11; ++newest) {
    for (const int age : {0, 2, 1, 0}) {
      if (age > newest) continue;
      EXPECT_EQ(read(newest - age, Pass::Backward), 1.0f + static_cast<float>(newest - age)) << newest;
    }
    for (const int age : {1, 0}) {
      if (age > newest) continue;
      EXPECT_EQ(read(newest - age, Pass::Forward), 1.0f + static_cast<float>(newest - age)) << newest;
      EXPECT_EQ(table(), 1.0f + static_cast<float>(newest - age)) << newest;
    }
    step_to(2.0f + static_cast<float>(newest));
  }
}

TEST_F(WeightVersionsTest, the_table_is_kept_for_forwards_alone) {
  // pipedream's forwards take the newest weights: P - 1 copies of the largest matrix would never be read.
  hold({.by_all = 4, .by_forwards = 1, .updates = 100});
  const int64_t norms = 3 * 64;  // of 12 elements, each rounded up to 64 bytes
  EXPECT_EQ(versions_->bytes(), 3 * (store_.packed_bytes() + norms));
  for (int newest = 1; newest < 6; ++newest) {
    step_to(1.0f + static_cast<float>(newest));
    EXPECT_EQ(read(newest - 1, Pass::Backward), static_cast<float>(newest));
    EXPECT_EQ(read(newest, Pass::Forward), 1.0f + static_cast<float>(newest));
    EXPECT_EQ(table(), 1.0f + static_cast<float>(newest));
  }
}

TEST_F(WeightVersionsTest, a_version_that_is_not_held_is_an_error_with_those_that_are) {
  hold({.by_all = 3, .by_forwards = 2, .updates = 100});
  for (int update = 1; update <= 5; ++update) step_to(1.0f + static_cast<float>(update));
  const Status old = versions_->read(2, Pass::Backward);
  EXPECT_EQ(old.code(), StatusCode::kInternal);
  EXPECT_THAT(message(old), HasSubstr("version 2 are not held any more; backwards can read versions 3 to 5"));
  EXPECT_THAT(message(versions_->read(3, Pass::Forward)), HasSubstr("forwards can read versions 4 to 5"));
  EXPECT_THAT(message(versions_->read(6, Pass::Forward)), HasSubstr("version 6 are not made yet"));
  EXPECT_FALSE(versions_->read(-1, Pass::Forward).ok());
}

TEST_F(WeightVersionsTest, the_last_version_of_a_program_is_the_first_of_the_next) {
  // Drained: what the run before computed with is not read again.
  hold({.by_all = 2, .by_forwards = 2, .updates = 3});
  for (int update = 1; update <= 3; ++update) step_to(1.0f + static_cast<float>(update));
  EXPECT_EQ(read(0, Pass::Forward), 4);
  EXPECT_FALSE(versions_->read(1, Pass::Forward).ok());
  step_to(5);
  EXPECT_EQ(read(0, Pass::Backward), 4);
  EXPECT_EQ(read(1, Pass::Backward), 5);
  EXPECT_EQ(table(), 5);
}

TEST_F(WeightVersionsTest, one_version_takes_no_memory_and_moves_nothing) {
  hold({.by_all = 1, .by_forwards = 1, .updates = 1});
  EXPECT_EQ(versions_->bytes(), 0);
  const void* packed = store_.at("lm_head.weight").packed.weight.data;
  step_to(7);
  EXPECT_EQ(read(0, Pass::Forward), 7);
  EXPECT_EQ(store_.at("lm_head.weight").packed.weight.data, packed);
  EXPECT_EQ(store_.at("model.norm.weight").value.data(), store_.at("model.norm.weight").weight.data());
  EXPECT_FALSE(versions_->read(1, Pass::Forward).ok());
}

TEST_F(WeightVersionsTest, older_versions_of_a_tied_matrix_are_refused) {
  plan::ModelSpec tied = model();
  tied.tie_word_embeddings = true;
  ParameterStore store = ParameterStore::create(tied, plan::model_items(tied)).value();
  EXPECT_EQ(WeightVersions::create({.by_all = 2}, store, *operators_).status().code(),
            StatusCode::kUnimplemented);
  EXPECT_TRUE(WeightVersions::create({}, store, *operators_).ok());
}

}  // namespace
}  // namespace penstock::worker
