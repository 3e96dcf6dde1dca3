// Model, data and optimizer together: the training that every schedule and every split must reproduce.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "worker/model/testing/llama_fixture.h"
#include "worker/model/testing/sequential_run.h"
#include "worker/optimizer/adamw.h"

namespace penstock::worker {
namespace {

// A run whose stages each have their own optimizer, as ranks do.
class Training {
 public:
  Training(const plan::JobSpec& job, const std::vector<size_t>& counts, int threads = 1)
      : run_(job, cut(job.model, counts), threads) {
    for (size_t stage = 0; stage < run_.stages(); ++stage) {
      optimizers_.push_back(AdamW::create(job.train, run_.parameters(stage), run_.operators()).value());
    }
  }

  SequentialRun& run() { return run_; }
  double gradient_norm() const { return gradient_norm_; }

  double step(int64_t step) {
    run_.run_step(step);
    std::vector<SquaredNorm> norms;
    for (AdamW& optimizer : optimizers_) {
      for (const SquaredNorm& norm : optimizer.local_squared_norms()) norms.push_back(norm);
    }
    GradientNorm norm(static_cast<int64_t>(run_.parameters().size()));
    gradient_norm_ = norm.of(norms).value();
    for (AdamW& optimizer : optimizers_) {
      const Status applied = optimizer.apply(StepIndex(step), gradient_norm_);
      PENSTOCK_CHECK(applied.ok(), "{}", message(applied));
    }
    run_.share_tied_weight();
    return run_.loss();
  }

 private:
  SequentialRun run_;
  std::vector<AdamW> optimizers_;
  double gradient_norm_ = 0;
};

TEST(Training, five_steps_agree_with_pytorch) {
  // AdamW, clipping, warm-up and cosine against torch.optim, through losses, norms and the final weights.
  const LlamaFixture fixture(PENSTOCK_SOURCE_DIR "/tests/fixtures/llama");
  Training training(fixture.job(2), {});
  for (const Parameter& parameter : training.run().parameters()) {
    const std::span<const float> initial = fixture.tensor("initial/" + parameter.spec.name);
    std::copy(initial.begin(), initial.end(), parameter.weight.f32());
  }
  for (int64_t step = 0; step < fixture.count("steps"); ++step) {
    const double loss = fixture.number(fmt::format("loss.{}", step));
    const double norm = fixture.number(fmt::format("gradient_norm.{}", step));
    EXPECT_NEAR(training.step(step), loss, 1e-5 * loss) << step;
    EXPECT_NEAR(training.gradient_norm(), norm, 1e-5 * norm) << step;
  }
  for (const Parameter& parameter : training.run().parameters()) {
    const std::span<const float> expected = fixture.tensor("final/" + parameter.spec.name);
    EXPECT_LT(relative_error(values_of(parameter.weight), expected), 1e-5) << parameter.spec.name;
  }
}

class TextTraining : public ::testing::Test {
 protected:
  TextTraining() {
    path_ = std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_training_{}.txt", ::getpid());
  }
  ~TextTraining() override { std::filesystem::remove(path_); }

  plan::JobSpec job(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    plan::JobSpec job;
    job.model.vocab_size = 256;
    job.model.hidden_size = 32;
    job.model.num_hidden_layers = 3;
    job.model.num_attention_heads = 4;
    job.model.num_key_value_heads = 2;
    job.model.intermediate_size = 48;
    job.data.sources = {path_};
    job.data.sequence_length = 16;
    job.train.steps = 40;
    job.train.global_batch_size = 8;
    job.train.microbatch_size = 2;
    job.train.seed = 1;
    job.train.optimizer.lr = 1e-2;
    job.train.lr_schedule = {"cosine", 4, /*decay_steps=*/0, 0.1};
    return job;
  }

  static std::string random_bytes(size_t count) {
    std::mt19937 random(9);
    std::string text(count, 0);
    for (char& c : text) c = static_cast<char>(random() & 255);
    return text;
  }

  std::filesystem::path path_;
};

TEST_F(TextTraining, split_and_threads_do_not_change_losses_or_weights) {
  const plan::JobSpec spec = job(random_bytes(8000));
  Training one(spec, {});
  Training four(spec, {1, 2, 1, 1}, 2);
  for (int64_t step = 0; step < 6; ++step) {
    EXPECT_EQ(one.step(step), four.step(step));
    EXPECT_EQ(one.gradient_norm(), four.gradient_norm());
  }
  std::vector<WeightDigest> digests = one.run().parameters(0).digests();
  std::vector<WeightDigest> joined;
  for (size_t stage = 0; stage < four.run().stages(); ++stage) {
    for (const WeightDigest& digest : four.run().parameters(stage).digests()) joined.push_back(digest);
  }
  ASSERT_EQ(joined.size(), digests.size());
  for (size_t i = 0; i < digests.size(); ++i) EXPECT_EQ(joined[i].digest, digests[i].digest) << i;
}

TEST_F(TextTraining, tied_embeddings_train_to_the_same_bits_on_one_rank_and_on_four) {
  plan::JobSpec spec = job(random_bytes(8000));
  spec.model.tie_word_embeddings = true;
  spec.model.qk_norm = true;
  spec.model.hidden_dropout = 0.1;
  Training one(spec, {});
  Training four(spec, {1, 2, 1, 1}, 2);
  for (int64_t step = 0; step < 6; ++step) {
    EXPECT_EQ(one.step(step), four.step(step));
    EXPECT_EQ(one.gradient_norm(), four.gradient_norm());
  }
  const kernels::TensorView expected = one.run().parameters(0).tied_embedding()->weight;
  for (const kernels::TensorView found :
       {four.run().parameters(0).tied_embedding()->weight, four.run().parameters(3).tied_head()->weight}) {
    EXPECT_EQ(std::memcmp(found.data(), expected.data(), static_cast<size_t>(expected.bytes())), 0);
  }
}

TEST_F(TextTraining, another_seed_gives_other_losses) {
  plan::JobSpec spec = job(random_bytes(8000));
  Training one(spec, {});
  spec.train.seed = 2;
  Training two(spec, {});
  EXPECT_NE(one.step(0), two.step(0));
}

TEST_F(TextTraining, one_repeated_byte_is_learned_to_nothing) {
  const plan::JobSpec spec = job(std::string(8000, 'x'));
  Training training(spec, {});
  EXPECT_NEAR(training.step(0), std::log(256.0), 0.5);
  double loss = 0;
  for (int64_t step = 1; step < 40; ++step) loss = training.step(step);
  EXPECT_LT(loss, 0.01);
}

TEST_F(TextTraining, uniformly_random_bytes_stay_at_their_entropy) {
  // A loss below ln 256 here would mean that targets leak into the inputs.
  plan::JobSpec spec = job(random_bytes(8000));
  spec.train.optimizer.lr = 1e-3;
  Training training(spec, {});
  for (int64_t step = 0; step < 40; ++step) EXPECT_NEAR(training.step(step), std::log(256.0), 0.15) << step;
}

}  // namespace
}  // namespace penstock::worker
