#include <gtest/gtest.h>

#include <cstring>

#include "kernels/device/compute_threads.h"
#include "worker/model/parameters.h"

namespace penstock::worker {
namespace {

TEST(Initialisation, number_of_threads_changes_no_bit) {
  plan::ModelSpec model;
  model.vocab_size = 4099;  // an embedding of three pieces, the last of them short
  model.hidden_size = 36;
  model.num_hidden_layers = 1;
  model.num_attention_heads = 3;
  model.num_key_value_heads = 1;
  model.intermediate_size = 20;
  const auto initialised = [&](int threads) {
    ParameterStore store = ParameterStore::create(model, plan::model_items(model)).value();
    kernels::ComputeThreads helpers(threads);
    store.initialise(model, 7, helpers);
    return store;
  };
  const ParameterStore one = initialised(1);
  const ParameterStore three = initialised(3);
  for (size_t i = 0; i < one.parameters().size(); ++i) {
    const kernels::TensorView a = one.parameters()[i].weight;
    const kernels::TensorView b = three.parameters()[i].weight;
    EXPECT_EQ(std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())), 0)
        << one.parameters()[i].spec.name;
  }
  // The pieces are of one stream: what one call without pieces gives.
  const kernels::TensorView embedding = three.parameters().front().weight;
  std::vector<float> whole(static_cast<size_t>(embedding.elements()));
  fill_normal(7, three.parameters().front().spec.name, model.initializer_range, whole);
  EXPECT_EQ(std::memcmp(embedding.data(), whole.data(), 4 * whole.size()), 0);
}

}  // namespace
}  // namespace penstock::worker
