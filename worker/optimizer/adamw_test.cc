#include "worker/optimizer/adamw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class AdamWTest : public ::testing::Test {
 protected:
  AdamWTest() : operators_(kernels::make_cpu_operators(threads_)) {
    model_.vocab_size = 11;
    model_.hidden_size = 12;
    model_.num_hidden_layers = 1;
    model_.num_attention_heads = 3;
    model_.num_key_value_heads = 1;
    model_.intermediate_size = 20;
    train_.steps = 10;
    train_.optimizer.weight_decay = 0.5;
    train_.optimizer.clip_grad_norm = 0;
  }

  ParameterStore store() const {
    ParameterStore store = ParameterStore::create(model_, plan::model_items(model_)).value();
    store.initialise(model_, 1);
    return store;
  }

  // Of every weight and the packed copies that products read.
  static std::vector<std::vector<char>> bytes_of(const ParameterStore& store) {
    std::vector<std::vector<char>> all;
    const auto add = [&](const void* data, int64_t bytes) {
      const char* first = static_cast<const char*>(data);
      all.emplace_back(first, first + bytes);
    };
    for (const Parameter& parameter : store.parameters())
      add(parameter.weight.data(), parameter.weight.bytes());
    add(store.packed().data, store.packed().bytes);
    return all;
  }

  kernels::ComputeThreads threads_{1};
  std::unique_ptr<kernels::Operators> operators_;
  plan::ModelSpec model_;
  plan::TrainSpec train_;
};

TEST(GradientNorm, is_the_root_of_the_sum_in_model_order) {
  EXPECT_EQ(GradientNorm(2).of(std::vector<SquaredNorm>{{1, 16}, {0, 9}}).value(), 5);
}

TEST(GradientNorm, does_not_depend_on_the_order_in_which_ranks_report) {
  // Each rank sums on its own; one different bit would pull their weights apart.
  std::vector<SquaredNorm> norms;
  norms.reserve(50);
  for (int32_t i = 0; i < 50; ++i) norms.push_back({i, std::ldexp(1.0 / (i + 3), i % 7 * 9)});
  const double expected = GradientNorm(50).of(norms).value();
  std::reverse(norms.begin(), norms.end());
  EXPECT_EQ(GradientNorm(50).of(norms).value(), expected);
  std::swap(norms[3], norms[31]);
  EXPECT_EQ(GradientNorm(50).of(norms).value(), expected);
}

TEST(GradientNorm, a_missing_doubled_or_foreign_parameter_is_an_error) {
  EXPECT_THAT(message(GradientNorm(2).of(std::vector<SquaredNorm>{{0, 1}}).status()),
              HasSubstr("1 of 2 is missing"));
  EXPECT_THAT(message(GradientNorm(2).of(std::vector<SquaredNorm>{{0, 1}, {0, 1}}).status()),
              HasSubstr("two ranks"));
  EXPECT_THAT(message(GradientNorm(2).of(std::vector<SquaredNorm>{{2, 1}}).status()), HasSubstr("2 of 2"));
}

TEST(ClippingCoefficient, brings_a_large_norm_down_and_leaves_a_small_one) {
  EXPECT_NEAR(clipping_coefficient(4, 1), 0.25, 1e-6);
  EXPECT_EQ(clipping_coefficient(0.5, 1), 1);
  EXPECT_EQ(clipping_coefficient(0, 1), 1);
  EXPECT_EQ(clipping_coefficient(4, 0), 1);
}

TEST_F(AdamWTest, squared_norms_are_those_of_the_gradients) {
  ParameterStore parameters = store();
  for (const Parameter& parameter : parameters.parameters()) operators_->fill(parameter.gradient, 2);
  AdamW optimizer = AdamW::create(train_, parameters, *operators_).value();
  const std::span<const SquaredNorm> norms = optimizer.local_squared_norms();
  ASSERT_EQ(norms.size(), parameters.parameters().size());
  for (size_t i = 0; i < norms.size(); ++i) {
    EXPECT_EQ(norms[i].parameter, parameters.parameters()[i].spec.index);
    EXPECT_EQ(norms[i].value, 4.0 * static_cast<double>(parameters.parameters()[i].spec.elements()));
  }
}

TEST_F(AdamWTest, without_a_gradient_matrices_decay_and_norms_do_not) {
  // A decayed norm would pull every layer's scale to zero.
  ParameterStore parameters = store();
  const ParameterStore before = store();
  AdamW optimizer = AdamW::create(train_, parameters, *operators_).value();
  ASSERT_TRUE(optimizer.apply(StepIndex(0), 0).ok());
  for (size_t i = 0; i < parameters.parameters().size(); ++i) {
    const Parameter& parameter = parameters.parameters()[i];
    const bool norm = parameter.spec.shape.size() == 1;
    const double kept = norm ? 1 : 1 - 1e-3 * 0.5;
    for (int64_t k = 0; k < parameter.weight.elements(); ++k) {
      const double expected = before.parameters()[i].weight.f32()[k] * kept;
      ASSERT_NEAR(parameter.weight.f32()[k], expected, 1e-7 * std::abs(expected)) << parameter.spec.name;
    }
  }
}

TEST_F(AdamWTest, parameters_that_no_decay_names_keep_their_weights) {
  train_.optimizer.no_decay = {"*.mlp.*", "model.embed_tokens.weight"};
  ParameterStore parameters = store();
  const ParameterStore before = store();
  AdamW optimizer = AdamW::create(train_, parameters, *operators_).value();
  ASSERT_TRUE(optimizer.apply(StepIndex(0), 0).ok());
  for (size_t i = 0; i < parameters.parameters().size(); ++i) {
    const Parameter& parameter = parameters.parameters()[i];
    const bool named = parameter.spec.name.find("mlp") != std::string::npos ||
                       parameter.spec.name.find("embed") != std::string::npos;
    const float was = before.parameters()[i].weight.f32()[0];
    EXPECT_EQ(parameter.weight.f32()[0] == was, named) << parameter.spec.name;
  }
}

TEST_F(AdamWTest, the_first_step_moves_each_weight_by_the_learning_rate) {
  train_.optimizer.weight_decay = 0;
  ParameterStore parameters = store();
  const ParameterStore before = store();
  for (const Parameter& parameter : parameters.parameters()) operators_->fill(parameter.gradient, -3);
  AdamW optimizer = AdamW::create(train_, parameters, *operators_).value();
  ASSERT_TRUE(optimizer.apply(StepIndex(0), 100).ok());
  for (size_t i = 0; i < parameters.parameters().size(); ++i) {
    EXPECT_NEAR(parameters.parameters()[i].weight.f32()[0] - before.parameters()[i].weight.f32()[0], 1e-3,
                1e-6);
  }
}

TEST_F(AdamWTest, a_step_renews_the_packed_weights_and_leaves_gradients_of_zero) {
  // The next forward reads the packed copies and nothing else.
  ParameterStore parameters = store();
  parameters.pack(*operators_);
  for (const Parameter& parameter : parameters.parameters()) operators_->fill(parameter.gradient, -3);
  AdamW optimizer = AdamW::create(train_, parameters, *operators_).value();
  ASSERT_TRUE(optimizer.apply(StepIndex(0), 100).ok());
  for (const Parameter& parameter : parameters.parameters()) {
    for (int64_t k = 0; k < parameter.gradient.elements(); ++k) ASSERT_EQ(parameter.gradient.f32()[k], 0);
    const kernels::PackedWeight& weight = parameter.packed.weight;
    if (weight.data == nullptr) continue;
    const auto bytes = static_cast<size_t>(kernels::packed_weight_bytes(weight.out, weight.in, weight.type));
    const std::vector<char> renewed(static_cast<char*>(weight.data), static_cast<char*>(weight.data) + bytes);
    parameters.pack(*operators_);
    EXPECT_EQ(std::memcmp(renewed.data(), weight.data, bytes), 0) << parameter.spec.name;
  }
}

TEST_F(AdamWTest, a_norm_that_is_not_finite_changes_nothing_and_is_named) {
  ParameterStore parameters = store();
  AdamW optimizer = AdamW::create(train_, parameters, *operators_).value();
  const std::vector<WeightDigest> before = parameters.digests();
  for (const double norm : {kInfinity, std::nan(""), -std::nan("")}) {
    const Status status = optimizer.apply(StepIndex(7), norm);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(message(status), HasSubstr(std::isnan(norm) ? "norm is nan:" : "norm is inf:"));
  }
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(parameters.digests()[i].digest, before[i].digest);
}

TEST_F(AdamWTest, a_norm_that_is_not_finite_is_a_step_that_is_skipped_where_the_job_says_so) {
  train_.optimizer.nonfinite = "skip";
  ParameterStore parameters = store();
  AdamW optimizer = AdamW::create(train_, parameters, *operators_).value();
  const std::vector<std::vector<char>> before = bytes_of(parameters);
  for (const double norm : {kInfinity, std::nan("")}) {
    for (const Parameter& parameter : parameters.parameters()) operators_->fill(parameter.gradient, 7);
    EXPECT_TRUE(optimizer.apply(StepIndex(7), norm).ok());
    EXPECT_EQ(bytes_of(parameters), before);
    for (const SquaredNorm& left : optimizer.local_squared_norms()) EXPECT_EQ(left.value, 0);
  }
}

TEST_F(AdamWTest,
       a_step_that_is_kept_and_one_that_is_rolled_back_and_taken_anew_have_the_bits_of_a_plain_one) {
  // Weights, packed copies and moments: three stores take the same three steps, the second one always first
  // without its clipping.
  train_.optimizer.clip_grad_norm = 0.5;
  ParameterStore plain = store(), kept = store(), redone = store();
  AdamW plain_optimizer = AdamW::create(train_, plain, *operators_).value();
  AdamW kept_optimizer = AdamW::create(train_, kept, *operators_).value();
  AdamW redone_optimizer = AdamW::create(train_, redone, *operators_).value();
  ASSERT_TRUE(kept_optimizer.allocate_rollback().ok());
  ASSERT_TRUE(redone_optimizer.allocate_rollback().ok());
  EXPECT_EQ(kept_optimizer.rollback_bytes(), 3 * kept.parameter_bytes());
  for (ParameterStore* each : {&plain, &kept, &redone}) each->pack(*operators_);
  for (int step = 0; step < 3; ++step) {
    for (ParameterStore* each : {&plain, &kept, &redone}) {
      for (const Parameter& parameter : each->parameters())
        operators_->fill(parameter.gradient, static_cast<float>(1 + step) / 16);
    }
    const bool clips = step == 1;
    const double norm = clips ? 2 : 0.25;
    ASSERT_TRUE(plain_optimizer.apply(StepIndex(step), norm).ok());
    ASSERT_EQ(kept_optimizer.uses_as_is(norm), !clips);
    if (clips) {
      ASSERT_TRUE(kept_optimizer.apply(StepIndex(step), norm).ok());
    } else {
      kept_optimizer.apply_provisionally(StepIndex(step));
      kept_optimizer.keep();
    }
    const auto before = bytes_of(redone);
    redone_optimizer.apply_provisionally(StepIndex(step));
    EXPECT_NE(bytes_of(redone), before);
    redone_optimizer.roll_back();
    EXPECT_EQ(bytes_of(redone), before);
    ASSERT_TRUE(redone_optimizer.apply(StepIndex(step), norm).ok());  // of the gradients that were kept
    EXPECT_EQ(bytes_of(kept), bytes_of(plain));
    EXPECT_EQ(bytes_of(redone), bytes_of(plain));
  }
}

TEST_F(AdamWTest, moments_take_twice_the_bytes_of_the_parameters) {
  const ParameterStore parameters = store();
  EXPECT_EQ(AdamW::create(train_, parameters, *operators_)->optimizer_bytes(),
            2 * parameters.parameter_bytes());
}

TEST_F(AdamWTest, moments_on_two_ranks_update_the_weights_that_one_rank_would) {
  // What each leaves to the other stays as it is, and no gradient is used twice.
  const ParameterStore whole = store(), one = store(), other = store();
  std::vector<bool> of_one, of_other;
  for (size_t i = 0; i < whole.parameters().size(); ++i) {
    of_one.push_back(i % 3 == 0);
    of_other.push_back(i % 3 != 0);
  }
  AdamW all = AdamW::create(train_, whole, *operators_).value();
  AdamW first = AdamW::create(train_, one, *operators_, of_one).value();
  AdamW second = AdamW::create(train_, other, *operators_, of_other).value();
  EXPECT_EQ(first.optimizer_bytes() + second.optimizer_bytes(), all.optimizer_bytes());
  const auto before = bytes_of(one);
  for (const ParameterStore* each : {&whole, &one, &other}) {
    for (const Parameter& parameter : each->parameters()) operators_->fill(parameter.gradient, 0.25f);
  }
  for (AdamW* optimizer : {&all, &first, &second}) ASSERT_TRUE(optimizer->apply(StepIndex(0), 1).ok());
  const auto expected = bytes_of(whole), by_first = bytes_of(one), by_second = bytes_of(other);
  for (size_t i = 0; i < of_one.size(); ++i) {
    EXPECT_EQ(of_one[i] ? by_first[i] : by_second[i], expected[i]) << i;
    EXPECT_EQ(of_one[i] ? by_second[i] : by_first[i], before[i]) << i;
    EXPECT_EQ(one.parameters()[i].gradient.f32()[0], 0) << i;
    EXPECT_EQ(first.moments()[i].first.empty(), !of_one[i]);
  }
}

}  // namespace
}  // namespace penstock::worker
