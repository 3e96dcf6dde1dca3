// Matrix products and nothing else, by plain oneDNN on one thread: what a step or a layer is held against.
//
// For every product the fastest way is looked for when it is made: operands as they lie or in the layout that oneDNN
// likes best (the reorder is not counted), the whole product in one call or cut into rows of 256 or 128, or, of a
// weight gradient, into sums of 512 tokens. Each of a product's `count` runs has memory of its own, as the layers of a
// step have, so that caches help neither more nor less; attention's small tiles all run on the same, as on scratch.
// Thread: one, the one that runs it.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "kernels/tensor/tensor.h"
#include "tests/perf/measure/product.h"

namespace penstock::perf {

class BareProducts {
 public:
  // type: of the operands.
  BareProducts(const std::vector<Product>& products, kernels::DataType type);
  ~BareProducts();

  // All of them.
  void run();
  // CPU time of `run` by product, as {name, seconds, share of the floating-point operations}: where it goes.
  struct Row {
    Product product;
    double seconds = 0;
  };
  std::vector<Row> profile();

 private:
  class Runner;
  std::vector<std::unique_ptr<Runner>> runners_;
};

}  // namespace penstock::perf
