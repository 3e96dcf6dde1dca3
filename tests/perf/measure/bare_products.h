// A microbatch's matrix products and nothing else, by plain oneDNN on one thread: what a step is held against.
//
// For every product the fastest way is looked for when it is made: operands as they lie or in the layout that oneDNN
// likes best (the reorder is not counted), the whole product in one call or cut into rows of 256 or 128, or, of a
// weight gradient, into sums of 512 tokens. Every product of a layer has memory of its own, as in the step, so that
// caches help neither more nor less; attention's small tiles all run on the same, as on scratch.
// Thread: one, the one that runs it.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "tests/perf/step/shapes.h"

namespace penstock::perf {

class BareProducts {
 public:
  explicit BareProducts(const StepShape& shape);
  ~BareProducts();

  // All products of one microbatch.
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
