// Files of weights come from anywhere: no damage to a safetensors file, an index or a config.json may do more than be
// refused.
#include <gtest/gtest.h>

#include <fstream>

#include "base/safetensors/folder.h"
#include "base/safetensors/testing/written.h"
#include "plan/interop/hugging_face.h"
#include "tests/fuzz/mutator.h"

namespace penstock {
namespace {

using fuzz::Mutator;
using fuzz::Rounds;
using testing::TemporaryFolder;

constexpr int kRounds = 4000;

std::string fixture(const std::string& name) {
  std::ifstream file(std::string(PENSTOCK_SOURCE_DIR) + "/tests/fixtures/hugging_face/" + name,
                     std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  PENSTOCK_CHECK(!bytes.empty(), "{}", name);
  return bytes;
}

// A small file whose header is most of it.
std::string small_file() {
  const TemporaryFolder folder("safetensors_fuzz_seed");
  testing::write_tensors(folder.path("x"),
                         {{"a", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"b", {0}, {}}, {"c", {1}, {7}}});
  return folder.read("x");
}

std::vector<std::string> header_words() {
  return {"dtype",
          "shape",
          "data_offsets",
          "__metadata__",
          "F32",
          "F64",
          "BF16",
          "[0,0]",
          "9223372036854775807",
          "18446744073709551615",
          "-1",
          "1e99",
          "{",
          "}",
          "[",
          "]",
          "\"a\":",
          "null"};
}

// Whatever the reader accepts is safe to read to its last byte.
void read_all(const SafetensorsFile& file) {
  for (const TensorEntry& tensor : file.tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.elements()));
    (void)file.read(tensor, 0, values);
  }
}

TEST(SafetensorsFuzz, damaged_file_is_read_or_refused_with_its_name) {
  Mutator mutator("safetensors file", header_words());
  SCOPED_TRACE(fmt::format("PENSTOCK_FUZZ_SEED={}", mutator.seed()));
  const TemporaryFolder folder("safetensors_fuzz_file");
  const std::string seed = small_file();
  int refused = 0;
  Rounds rounds(kRounds);
  while (rounds.next()) {
    std::string bytes = mutator.mutated(seed);
    // The count of the header is right as often as not: what stands behind it is read then.
    if (mutator.one_in(2) && bytes.size() > 8) {
      const uint64_t count = mutator.one_in(4) ? mutator.below(bytes.size()) : bytes.rfind('}') - 7;
      std::memcpy(bytes.data(), &count, 8);
    }
    folder.write("x.safetensors", bytes);
    const auto file = SafetensorsFile::open(folder.path("x.safetensors"));
    if (file.ok()) {
      read_all(*file);
    } else {
      ++refused;
      ASSERT_EQ(message(file.status()).find(folder.path("x.safetensors")), 0u) << file.status();
    }
  }
  EXPECT_GT(refused, rounds.done() / 2);
}

TEST(SafetensorsFuzz, file_that_ends_anywhere_is_refused) {
  const TemporaryFolder folder("safetensors_fuzz_cut");
  const std::string whole = small_file();
  folder.write("x", whole);
  ASSERT_TRUE(SafetensorsFile::open(folder.path("x")).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    folder.write("x", whole.substr(0, size));
    EXPECT_FALSE(SafetensorsFile::open(folder.path("x")).ok()) << size;
  }
}

TEST(SafetensorsFuzz, damaged_index_is_read_or_refused) {
  Mutator mutator("safetensors index",
                  {"weight_map", "metadata", "one.safetensors", "..", "/", "\\u0000", "null", "{"});
  SCOPED_TRACE(fmt::format("PENSTOCK_FUZZ_SEED={}", mutator.seed()));
  const TemporaryFolder folder("safetensors_fuzz_index");
  testing::write_tensors(folder.path("one.safetensors"), {{"a", {1}, {1}}});
  testing::write_tensors(folder.path("two.safetensors"), {{"b", {1}, {2}}});
  const std::string index = format_tensor_index({{"a", "one.safetensors"}, {"b", "two.safetensors"}}, 8);
  folder.write(kTensorIndexFile, index);
  ASSERT_TRUE(TensorFolder::open(folder.path()).ok());
  const std::vector<ExpectedTensor> expected = {{"a", {1}}, {"b", {1}}};
  Rounds rounds(kRounds);
  while (rounds.next()) {
    folder.write(kTensorIndexFile, mutator.mutated(index));
    const auto tensors = TensorFolder::open(folder.path());
    if (tensors.ok()) (void)tensors->check(expected);
  }
}

TEST(SafetensorsFuzz, damaged_configuration_is_within_bounds_or_refused) {
  Mutator mutator("config.json",
                  {"rope_scaling", "rope_parameters", "rope_theta", "layer_types", "architectures",
                   "model_type", "head_dim", "null", "true", "[", "{", "1e309", "-0"});
  SCOPED_TRACE(fmt::format("PENSTOCK_FUZZ_SEED={}", mutator.seed()));
  const std::string seeds[] = {fixture("llama/config.json"), fixture("qwen3/config.json")};
  Rounds rounds(kRounds);
  while (rounds.next()) {
    const auto model = plan::model_from_hugging_face(mutator.mutated(seeds[mutator.below(2)]));
    if (!model.ok()) continue;
    EXPECT_GT(model->num_hidden_layers, 0);
    EXPECT_LE(model->num_hidden_layers, 4096);
    EXPECT_GT(model->head_size(), 0);
    EXPECT_EQ(model->num_attention_heads % model->num_key_value_heads, 0);
    EXPECT_TRUE(plan::model_from_hugging_face(plan::model_to_hugging_face(*model, "float32")).ok());
  }
}

}  // namespace
}  // namespace penstock
