#include "tests/perf/step/shapes.h"

namespace penstock::perf {
namespace {

void add_linear(std::vector<Product>& products, const std::string& name, int64_t tokens, int64_t in,
                int64_t out, int64_t count) {
  products.push_back({name, tokens, out, in, count, Product::Kind::Weight});
  products.push_back({name + " input gradient", tokens, in, out, count, Product::Kind::Weight});
  products.push_back({name + " weight gradient", out, in, tokens, count, Product::Kind::WeightGradient});
}

void add_attention(std::vector<Product>& products, const StepShape& shape) {
  constexpr int64_t kQueries = 64;
  const int64_t size = shape.hidden / shape.heads;
  const int64_t count = shape.layers * shape.microbatch_size * shape.heads;
  for (int64_t keys = kQueries; keys <= shape.sequence_length; keys += kQueries) {
    const auto add = [&](const std::string& name, int64_t rows, int64_t columns, int64_t inner,
                         int64_t times) {
      products.push_back({name, rows, columns, inner, times * count, Product::Kind::Activation});
    };
    add("scores, twice; probability gradients", kQueries, keys, size, 3);
    add("values; query gradients", kQueries, size, keys, 2);
    add("value and key gradients", keys, size, kQueries, 2);
  }
}

}  // namespace

std::vector<Product> products_of_microbatch(const StepShape& shape) {
  std::vector<Product> products;
  const int64_t tokens = shape.tokens();
  add_linear(products, "query, key, value", tokens, shape.hidden, 3 * shape.hidden, shape.layers);
  add_linear(products, "attention output", tokens, shape.hidden, shape.hidden, shape.layers);
  add_linear(products, "gate, up", tokens, shape.hidden, 2 * shape.intermediate, shape.layers);
  add_linear(products, "down", tokens, shape.intermediate, shape.hidden, shape.layers);
  add_attention(products, shape);
  products.push_back({"logits", tokens, shape.vocabulary, shape.hidden, 1, Product::Kind::Weight, true});
  products.push_back(
      {"head input gradient", tokens, shape.hidden, shape.vocabulary, 1, Product::Kind::Weight});
  products.push_back(
      {"head weight gradient", shape.vocabulary, shape.hidden, tokens, 1, Product::Kind::WeightGradient});
  return products;
}

}  // namespace penstock::perf
