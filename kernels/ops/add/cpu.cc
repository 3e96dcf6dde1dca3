#include "kernels/ops/add/contract.h"
#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kElements = 65536;

template <typename Element>
void add_elements(Context& context, int64_t count, const Element* a, const Element* b, Element* output) {
  const Partition partition{count, kElements};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const Element* left = a + partition.begin(piece);
      const Element* right = b + partition.begin(piece);
      Element* to = output + partition.begin(piece);
      for_each_lanes(partition.length(piece), [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
        lanes.store(to + i, lanes.load(left + i) + lanes.load(right + i));
      });
    });
  });
}

}  // namespace

void add(Context& context, TensorView a, TensorView b, TensorView output) {
  expect_elements(b, a.elements(), "b", a.type());
  expect_elements(output, a.elements(), "output", a.type());
  with_element(a.type(), [&](auto element) {
    using Element = decltype(element);
    add_elements(context, a.elements(), data<Element>(a), data<Element>(b), data<Element>(output));
  });
}

}  // namespace penstock::kernels::cpu
