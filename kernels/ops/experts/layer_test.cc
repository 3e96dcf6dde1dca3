// A whole layer, from the router to the gradients, at the ends of what a job may ask for.
#include <gtest/gtest.h>

#include "kernels/ops/testing/experts.h"

namespace penstock::kernels::testing {
namespace {

struct Case {
  const char* name;
  int64_t tokens, experts, choices, hidden, intermediate;
  int64_t capacity = 0;
};

// One token goes to all experts, one expert gets all tokens, most experts get none, no size is a multiple of anything.
const Case kCases[] = {
    {"one_token_one_expert", 1, 1, 1, 1, 1},
    {"one_expert", 37, 1, 1, 24, 40},
    {"as_many_choices_as_experts", 29, 5, 5, 17, 23},
    {"more_experts_than_rows", 3, 1024, 2, 18, 10},
    {"130_experts", 67, 130, 8, 33, 7},
    {"odd_sizes", 131, 7, 3, 65, 129},
    {"an_expert_takes_one_row", 50, 4, 2, 20, 12, 1},
    {"no_tokens", 0, 4, 2, 20, 12},
};

class ExpertLayer : public ::testing::TestWithParam<std::tuple<Case, DataType>> {};

// Everything that a layer writes, read back.
struct Outcome {
  Floats output, x_gradient, router_gradient;
  std::vector<Floats> gate, up, down;
  Ints offsets;
  int64_t dropped = 0;
};

Outcome run_layer(Rig& rig, const Case& of, DataType type) {
  Random random(1800);
  const int64_t t = of.tokens, e = of.experts, k = of.choices, h = of.hidden, i = of.intermediate;
  const int64_t rows = of.capacity > 0 ? std::min(t * k, of.capacity * e) : t * k;
  ExpertSet experts(*rig.ops, random, e, h, i, type);
  Matrix x(random.normal(t * h), h, type), gradient(random.normal(t * h), h, type), output(t, h, type);
  Matrix payload(rows, h, type), gradient_rows(rows, h, type), outputs(rows, h, type),
      gate_up(rows, 2 * i, type);
  Matrix weighted(rows, i, type), x_gradient(t, h, type);
  Floats router = random.normal(e * h), router_gradient(e * h), row_weight(rows), row_gradient(rows);
  Floats choice_gradient(t * k);
  RoutingStorage routing(t, e, k);
  DispatchStorage dispatch(t, k, e, rows);
  const Routing route = routing.views();
  const Dispatch to = dispatch.views();
  const TensorView weight = view(router, {e, h});

  rig->router(x.view(), weight, true, route);
  const int64_t dropped = rig->plan_dispatch(route.expert, of.capacity, to);
  rig->gather_rows(x.view(), to, payload.view());
  rig->experts(payload.view(), to.offsets, experts.weights(), gate_up.view(), outputs.view());
  rig->combine_rows(outputs.view(), to, route.weight, {}, output.view());
  const RouterLossShape counted{t, 1};
  rig->router_losses(route, counted);
  rig->gather_rows(gradient.view(), to, gradient_rows.view());
  rig->gather_choices(route.weight, to, view(row_weight, {rows}));
  rig->experts_input_gradient({gradient_rows.view(), view(row_weight, {rows}), gate_up.view(), gate_up.view(),
                               weighted.view(), view(row_gradient, {rows}), outputs.view()},
                              to.offsets, experts.weights());
  rig->return_choices(view(row_gradient, {rows}), to, view(choice_gradient, {t, k}));
  rig->router_gradient(route, true, view(choice_gradient, {t, k}), counted, {0.01, 0.001},
                       route.probabilities);
  rig->router_input_gradient(route.probabilities, weight, x_gradient.view());
  rig->combine_rows(outputs.view(), to, {}, x_gradient.view(), x_gradient.view());
  rig->experts_weight_gradient({payload.view(), gradient_rows.view(), gate_up.view(), weighted.view()},
                               to.offsets, experts.gradients());
  rig->router_weight_gradient(route.probabilities, x.view(), view(router_gradient, {e, h}));
  return {output.values(),     x_gradient.values(),   router_gradient,  experts.gate_gradient,
          experts.up_gradient, experts.down_gradient, dispatch.offsets, dropped};
}

bool all_finite(const Floats& values) {
  return std::all_of(values.begin(), values.end(), [](float each) { return std::isfinite(each); });
}

TEST_P(ExpertLayer, works_at_the_ends_of_what_is_allowed) {
  const auto& [of, type] = GetParam();
  Rig rig, three(3);
  const Outcome found = run_layer(rig, of, type);
  EXPECT_EQ(found.offsets.back() + found.dropped, of.tokens * of.choices);
  EXPECT_TRUE(all_finite(found.output) && all_finite(found.x_gradient) && all_finite(found.router_gradient));
  for (int64_t e = 0; e < of.experts; ++e) {
    const auto index = static_cast<size_t>(e);
    const bool used = found.offsets[index + 1] > found.offsets[index];
    for (const auto* each : {&found.gate, &found.up, &found.down}) {
      const Floats& gradient = (*each)[index];
      EXPECT_TRUE(all_finite(gradient)) << e;
      const auto untouched = std::count(gradient.begin(), gradient.end(), 0.25f);
      EXPECT_EQ(untouched == std::ssize(gradient), !used) << e;
    }
  }
  const Outcome again = run_layer(three, of, type);
  EXPECT_EQ(again.output, found.output);
  EXPECT_EQ(again.x_gradient, found.x_gradient);
  EXPECT_EQ(again.gate, found.gate);
  EXPECT_EQ(again.down, found.down);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Case, DataType>>& info) {
  const bool narrow = std::get<DataType>(info.param) == DataType::BFloat16;
  return std::string(std::get<Case>(info.param).name) + (narrow ? "_bfloat16" : "_float32");
}

INSTANTIATE_TEST_SUITE_P(Ends, ExpertLayer,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values(DataType::Float32, DataType::BFloat16)),
                         name_of);

}  // namespace
}  // namespace penstock::kernels::testing
