// Folders that transformers wrote, against the logits and the loss that it computed (tests/fixtures/hugging_face).
#include <gmock/gmock.h>

#include <cmath>
#include <fstream>

#include "base/safetensors/file.h"
#include "plan/interop/hugging_face.h"
#include "plan/spec/parameters.h"
#include "worker/checkpoint/weights.h"
#include "worker/model/testing/sequential_run.h"

namespace penstock::worker {
namespace {

std::string fixture(const std::string& name) {
  return std::string(PENSTOCK_SOURCE_DIR) + "/tests/fixtures/hugging_face/" + name;
}

plan::JobSpec job_from(const std::string& folder) {
  std::ifstream file(folder + "/config.json");
  const std::string config{std::istreambuf_iterator<char>(file), {}};
  plan::JobSpec job;
  job.model = plan::model_from_hugging_face(config).value();
  job.model.from = folder;
  job.data.sources = {folder + "/text.txt"};
  job.data.sequence_length = 19;
  job.train.steps = 1;
  job.train.global_batch_size = 1;
  job.train.microbatch_size = 1;
  return job;
}

std::vector<float> reference(const std::string& folder, const std::string& name) {
  const auto file = SafetensorsFile::open(folder + "/reference.safetensors");
  PENSTOCK_CHECK(file.ok(), "{}", message(file.status()));
  const TensorEntry* tensor = file->find(name);
  std::vector<float> values(static_cast<size_t>(tensor->elements()));
  PENSTOCK_CHECK(file->read(*tensor, 0, values).ok());
  return values;
}

// What the head multiplies with, in double: final norm and matrix over [tokens, hidden].
std::vector<double> logits_of(const plan::JobSpec& job, const ParameterStore& head,
                              std::span<const float> hidden) {
  const auto size = static_cast<size_t>(job.model.hidden_size);
  const auto vocabulary = static_cast<size_t>(job.model.vocab_size);
  const float* norm = head.at("model.norm.weight").weight.f32();
  const float* matrix = head.head_weight().weight.f32();
  std::vector<double> logits;
  for (size_t token = 0; token < hidden.size() / size; ++token) {
    const std::span<const float> row = hidden.subspan(token * size, size);
    double squares = 0;
    for (const float x : row) squares += double{x} * x;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(size) + job.model.rms_norm_eps);
    for (size_t word = 0; word < vocabulary; ++word) {
      double sum = 0;
      for (size_t i = 0; i < size; ++i) sum += row[i] * scale * norm[i] * matrix[word * size + i];
      logits.push_back(sum);
    }
  }
  return logits;
}

class HuggingFaceFolder : public ::testing::TestWithParam<const char*> {};

TEST_P(HuggingFaceFolder, gives_the_logits_and_the_loss_of_transformers) {
  const std::string folder = fixture(GetParam());
  const plan::JobSpec job = job_from(folder);
  SequentialRun run(job, cut(job.model, {static_cast<size_t>(job.model.num_hidden_layers) + 1, 1}));
  for (const size_t stage : {0u, 1u}) {
    const Status loaded = load_weights(folder, job.model, run.parameters(stage));
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  run.begin_step(0);
  run.forward(0);

  const std::vector<float> expected = reference(folder, "logits");
  const std::vector<double> found = logits_of(job, run.parameters(1), run.activation(0));
  ASSERT_EQ(found.size(), expected.size());
  double difference = 0;
  for (size_t i = 0; i < found.size(); ++i)
    difference = std::max(difference, std::abs(found[i] - expected[i]));
  EXPECT_LE(difference, 1e-4);
  EXPECT_NEAR(run.loss(), reference(folder, "loss")[0], 1e-5);
  RecordProperty("difference", std::to_string(difference));
}

INSTANTIATE_TEST_SUITE_P(Models, HuggingFaceFolder,
                         ::testing::Values("llama", "sharded", "deep", "qwen3", "qwen3_moe", "olmoe",
                                           "mixtral"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace penstock::worker
