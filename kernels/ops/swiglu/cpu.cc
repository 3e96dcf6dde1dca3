#include "kernels/ops/swiglu/cpu.h"

#include "kernels/ops/cpu/context.h"
#include "kernels/ops/cpu/elements.h"
#include "kernels/ops/cpu/lanes.h"
#include "kernels/ops/cpu/partition.h"
#include "kernels/ops/swiglu/contract.h"

namespace penstock::kernels::cpu {
namespace {

constexpr int64_t kTokens = 16;

template <typename Element>
struct Rows {
  explicit Rows(const TensorView& view)
      : first(view.empty() ? nullptr : data<Element>(view)), stride(view.empty() ? 0 : view.row_stride()) {}
  Element* of(int64_t token) const { return first == nullptr ? nullptr : first + token * stride; }

  Element* first;
  int64_t stride;
};

template <typename Element>
void forward(Context& context, int64_t tokens, int64_t width, Rows<Element> gate, Rows<Element> up,
             Rows<Element> output) {
  const Partition partition{tokens, kTokens};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t end = partition.begin(piece) + partition.length(piece);
      for (int64_t t = partition.begin(piece); t < end; ++t) {
        const Element* gates = gate.of(t);
        const Element* ups = up.of(t);
        Element* to = output.of(t);
        for_each_lanes(width, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
          const Lanes g = lanes.load(gates + i);
          lanes.store(to + i, g * sigmoid(g) * lanes.load(ups + i));
        });
      }
    });
  });
}

template <typename Element>
struct Backward {
  Rows<Element> gate, up, output_gradient, gate_gradient, up_gradient, output;
};

template <typename Element>
PENSTOCK_INLINE inline void token_backward(const Backward<Element>& tensors, int64_t t, int64_t width) {
  const Element* gates = tensors.gate.of(t);
  const Element* ups = tensors.up.of(t);
  const Element* gradients = tensors.output_gradient.of(t);
  Element* gate_to = tensors.gate_gradient.of(t);
  Element* up_to = tensors.up_gradient.of(t);
  Element* output_to = tensors.output.of(t);
  for_each_lanes(width, [&](const auto& lanes, int64_t i) PENSTOCK_INLINE {
    const Lanes g = lanes.load(gates + i);
    const Lanes u = lanes.load(ups + i);
    const Lanes dy = lanes.load(gradients + i);
    const Lanes s = sigmoid(g);
    const Lanes silu = g * s;
    if (output_to != nullptr) lanes.store(output_to + i, silu * u);
    lanes.store(up_to + i, dy * silu);
    lanes.store(gate_to + i, dy * u * s * (1.0f + g * (1.0f - s)));
  });
}

template <typename Element>
void backward(Context& context, int64_t tokens, int64_t width, const Backward<Element>& tensors) {
  const Partition partition{tokens, kTokens};
  context.parallel_for(partition.pieces(), [&](int64_t piece) {
    vectorised([&]() PENSTOCK_INLINE {
      const int64_t end = partition.begin(piece) + partition.length(piece);
      for (int64_t t = partition.begin(piece); t < end; ++t) token_backward(tensors, t, width);
    });
  });
}

}  // namespace

void swiglu(Context& context, TensorView gate, TensorView up, TensorView output) {
  const int64_t tokens = gate.size(0);
  const int64_t width = gate.size(1);
  for (const TensorView& each : {gate, up, output}) {
    expect_columns(each, tokens, width, "tensor of swiglu", gate.type());
  }
  with_element(gate.type(), [&](auto element) {
    using Element = decltype(element);
    forward(context, tokens, width, Rows<Element>(gate), Rows<Element>(up), Rows<Element>(output));
  });
}

void swiglu_backward(Context& context, TensorView gate, TensorView up, TensorView output_gradient,
                     TensorView gate_gradient, TensorView up_gradient, TensorView output) {
  const int64_t tokens = gate.size(0);
  const int64_t width = gate.size(1);
  for (const TensorView& each : {gate, up, output_gradient, gate_gradient, up_gradient}) {
    expect_columns(each, tokens, width, "tensor of swiglu", gate.type());
  }
  if (!output.empty()) expect_columns(output, tokens, width, "output", gate.type());
  with_element(gate.type(), [&](auto element) {
    using Element = decltype(element);
    backward<Element>(context, tokens, width,
                      {Rows<Element>(gate), Rows<Element>(up), Rows<Element>(output_gradient),
                       Rows<Element>(gate_gradient), Rows<Element>(up_gradient), Rows<Element>(output)});
  });
}

}  // namespace penstock::kernels::cpu
