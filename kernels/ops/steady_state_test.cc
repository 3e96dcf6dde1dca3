// After the first use of a shape an operation makes nothing: a training step must not meet the allocator.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "kernels/ops/testing/experts.h"
#include "kernels/ops/testing/packed.h"
#include "kernels/ops/testing/reference.h"

namespace {

std::atomic<int64_t> allocations{0};
std::atomic<bool> counting{false};  // looking up every caller of a whole test program would take seconds

// oneDNN 2.6 allocates a few small things in each execution; what is counted is what this program's own code
// asks for.
bool called_from_this_program(const void* caller) {
  static const void* const program = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<const void*>(&allocations), &info);
    return info.dli_fbase;
  }();
  Dl_info info{};
  return dladdr(caller, &info) != 0 && info.dli_fbase == program;
}

void* counted(size_t bytes, size_t alignment, const void* caller) {
  if (counting && called_from_this_program(caller)) ++allocations;
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(bytes)
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  return counted(bytes, 0, __builtin_return_address(0));
}
// As std::stable_sort asks; its memory goes back through the plain delete.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return counted(bytes, 0, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment), __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](size_t bytes) {
  return counted(bytes, 0, __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace penstock::kernels::testing {
namespace {

constexpr int64_t kSequences = 2, kLength = 150, kTokens = kSequences * kLength;
constexpr int64_t kHeads = 4, kKeyHeads = 2, kHeadSize = 16, kHidden = kHeads * kHeadSize;
constexpr int64_t kOut = 200;  // two pieces of output features
constexpr int64_t kVocabulary = 300;

// Tensors of every operation, made before anything is counted.
struct Tensors {
  Random random{1};
  Floats x = random.normal(kTokens * kHidden);
  Floats other = random.normal(kTokens * kHidden);
  Floats gradient = random.normal(kTokens * kHidden);
  Floats result = Floats(kTokens * kHidden);
  Floats key = random.normal(kTokens * kKeyHeads * kHeadSize);
  Floats value = random.normal(kTokens * kKeyHeads * kHeadSize);
  Floats key_gradient = Floats(key.size());
  Floats value_gradient = Floats(key.size());
  Floats log_sum_exp = Floats(kTokens * kHeads);
  Floats weight = random.normal(kOut * kHidden);
  Floats weight_gradient = Floats(kOut * kHidden);
  Floats wide = random.normal(kTokens * kOut);
  Floats scale = random.normal(kHidden);
  Floats scale_gradient = Floats(kHidden);
  Floats per_token = Floats(kTokens);
  Floats table = random.normal(kVocabulary * kHidden);
  Floats table_gradient = Floats(kVocabulary * kHidden);
  std::vector<int32_t> tokens = random.below(kVocabulary, kTokens);

  static TensorView hidden(Floats& values) { return view(values, {kTokens, kHidden}); }
  static TensorView keys(Floats& values) { return view(values, {kTokens, kKeyHeads * kHeadSize}); }
};

// Allocations of the second call; the first one makes what the shape needs.
int64_t steady_allocations(const std::function<void()>& operation) {
  operation();
  const int64_t before = allocations;
  counting = true;
  operation();
  counting = false;
  return allocations - before;
}

TEST(SteadyState, operations_without_products_allocate_nothing) {
  Rig rig(3);
  Tensors t;
  const auto h = &Tensors::hidden;
  EXPECT_EQ(steady_allocations([&] {
              rig->embedding(view(t.tokens), view(t.table, {kVocabulary, kHidden}), h(t.result));
              rig->embedding_backward(view(t.tokens), h(t.gradient),
                                      view(t.table_gradient, {kVocabulary, kHidden}));
              rig->rms_norm(h(t.x), view(t.scale, {kHidden}), 1e-5, h(t.result),
                            view(t.per_token, {kTokens}));
              rig->rms_norm_backward(h(t.x), view(t.scale, {kHidden}), view(t.per_token, {kTokens}),
                                     h(t.gradient), h(t.result), view(t.scale_gradient, {kHidden}));
              rig->rope(h(t.result), kLength, kHeadSize, 10000);
              rig->rope_backward(h(t.result), kLength, kHeadSize, 10000);
              rig->swiglu(h(t.x), h(t.other), h(t.result));
              rig->swiglu_backward(h(t.x), h(t.other), h(t.gradient), h(t.result), h(t.result));
              rig->add(h(t.x), h(t.other), h(t.result));
              rig->copy(h(t.x), h(t.result));
              rig->fill(h(t.result), 1);
              rig->sum_of_squares(h(t.x));
              rig->adamw(h(t.result), h(t.gradient), h(t.x), h(t.other), {.learning_rate = 1e-3});
            }),
            0);
}

TEST(SteadyState, products_allocate_nothing) {
  Rig rig(3);
  Tensors t;
  const auto h = &Tensors::hidden;
  const auto k = &Tensors::keys;
  const TensorView weight = view(t.weight, {kOut, kHidden});
  const TensorView weight_gradient = view(t.weight_gradient, {kOut, kHidden});
  const TensorView wide = view(t.wide, {kTokens, kOut});
  const AttentionShape shape{kSequences, kLength, kHeads, kKeyHeads, kHeadSize};
  const TensorView of_rows = view(t.log_sum_exp, {kTokens * kHeads});
  const TensorView table = view(t.table, {kVocabulary, kHidden});
  const TensorView table_gradient = view(t.table_gradient, {kVocabulary, kHidden});
  const Packed packed(*rig.ops, {weight});
  const Packed packed_table(*rig.ops, {table});
  EXPECT_EQ(steady_allocations([&] {
              rig->linear(h(t.x), packed.weight(), wide);
              rig->linear_input_gradient(wide, packed.weight(), h(t.result));
              rig->linear_weight_gradient(wide, h(t.x), {&weight_gradient, 1});
              rig->attention(shape, h(t.x), k(t.key), k(t.value), h(t.result), of_rows);
              rig->attention_backward(shape, h(t.x), k(t.key), k(t.value), h(t.result), of_rows,
                                      h(t.gradient), h(t.other), k(t.key_gradient), k(t.value_gradient));
              rig->head_loss(h(t.x), packed_table.weight(), view(t.tokens));
              rig->head_loss_and_gradients(h(t.x), packed_table.weight(), view(t.tokens), 1.0, h(t.result),
                                           table_gradient);
            }),
            0);
}

TEST(SteadyState, a_mixture_of_experts_allocates_nothing_however_the_tokens_go) {
  // Counts of tokens change from call to call: the first one makes every shape that may come.
  Rig rig(3);
  Random random(1100);
  constexpr int64_t kTokens = 150, kHidden = 40, kInner = 24, kExperts = 4, kChoices = 2;
  constexpr int64_t kRows = kTokens * kChoices;
  ExpertSet experts(*rig.ops, random, kExperts, kHidden, kInner, DataType::BFloat16);
  Floats x_values = random.normal(kTokens * kHidden), router = random.normal(kExperts * kHidden);
  Floats router_gradient(router.size()), row_weight(kRows), row_gradient(kRows), choice_gradient(kRows);
  Halves x(x_values), output(kTokens * kHidden), rows(kRows * kHidden), outputs(kRows * kHidden);
  Halves gate_up(kRows * 2 * kInner), weighted(kRows * kInner);
  RoutingStorage routing(kTokens, kExperts, kChoices);
  DispatchStorage dispatch(kTokens, kChoices, kExperts);
  const Routing route = routing.views();
  const Dispatch to = dispatch.views();
  const TensorView hidden = x.view({kTokens, kHidden}), payload = rows.view({kRows, kHidden});
  const TensorView back = outputs.view({kRows, kHidden}), gates = gate_up.view({kRows, 2 * kInner});
  const TensorView products = weighted.view({kRows, kInner}), sum = output.view({kTokens, kHidden});
  const TensorView weight = view(router, {kExperts, kHidden});
  const TensorView of_choices = view(choice_gradient, {kTokens, kChoices});
  const auto layer = [&] {
    rig->router(hidden, weight, true, route);
    rig->plan_dispatch(route.expert, 0, to);
    rig->gather_rows(hidden, to, payload);
    rig->experts(payload, to.offsets, experts.weights(), gates, back);
    rig->combine_rows(back, to, route.weight, hidden, sum);
    rig->router_losses(route, {3, 50});
    rig->gather_choices(route.weight, to, view(row_weight, {kRows}));
    rig->experts_input_gradient({.output_gradient = payload,
                                 .weight = view(row_weight, {kRows}),
                                 .gate_up = gates,
                                 .gate_up_gradient = gates,
                                 .weighted = products,
                                 .weight_gradient = view(row_gradient, {kRows}),
                                 .payload_gradient = back},
                                to.offsets, experts.weights());
    rig->return_choices(view(row_gradient, {kRows}), to, of_choices);
    rig->router_gradient(route, true, of_choices, {3, 50}, {1, 1}, route.probabilities);
    rig->router_input_gradient(route.probabilities, weight, sum);
    rig->experts_weight_gradient({payload, payload, gates, products}, to.offsets, experts.gradients());
    rig->router_weight_gradient(route.probabilities, hidden, view(router_gradient, {kExperts, kHidden}));
  };
  const auto changed = [&] {
    for (float& each : router) each = -each + 0.01f;
    layer();
  };
  EXPECT_EQ(steady_allocations(changed), 0);
  const Ints before = dispatch.offsets;
  changed();
  EXPECT_NE(dispatch.offsets, before);  // it was another routing
}

TEST(SteadyState, the_count_sees_an_allocation) {
  EXPECT_EQ(steady_allocations([] { Floats values(1000, 1.0f); }), 1);
}

}  // namespace
}  // namespace penstock::kernels::testing
