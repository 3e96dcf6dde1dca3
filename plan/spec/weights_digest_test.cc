#include "plan/spec/weights_digest.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/text.h"
#include "plan/spec/parameters.h"

namespace penstock::plan {
namespace {

TEST(TensorDigest, is_xxh3_of_the_bytes_however_they_come) {
  // Golden: xxhash.xxh3_128 of Python over the same bytes.
  const std::vector<float> values = {1.0f, -2.5f, 0.0f, 3e-5f, 1e30f};
  TensorDigester digester;
  digester.add(values);
  const TensorDigest whole = digester.finish();
  EXPECT_EQ(hex(whole), "2011629e84ff2eddfe7889be5b5e2d1b");
  digester.add(std::span(values).first(2));
  digester.add(std::span(values).subspan(2));
  EXPECT_EQ(digester.finish(), whole);
  EXPECT_EQ(hex(digester.finish()), "99aa06d3014798d86001c324468d497f");  // of nothing
}

TEST(WeightsDigest, hashes_names_shapes_and_digests_in_model_order) {
  // Golden: xxhash.xxh3_128 of Python over what the header describes.
  ModelSpec model;
  model.vocab_size = 7;
  model.hidden_size = 4;
  model.num_hidden_layers = 1;
  model.num_attention_heads = 2;
  model.num_key_value_heads = 1;
  model.intermediate_size = 6;
  model.max_position_embeddings = 8;
  std::vector<TensorDigest> digests(model_parameters(model).size());
  for (size_t i = 0; i < digests.size(); ++i) digests[i] = {static_cast<uint8_t>(i), 200};
  EXPECT_EQ(weights_digest(model, digests), "cf226bcb3b458fc34e49da3377ead823");
}

}  // namespace
}  // namespace penstock::plan
