#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/ops/cpu/matrix_product.h"
#include "kernels/ops/testing/experts.h"

namespace penstock::kernels::testing {
namespace {

// Rows of an expert: none, one, whole tiles and parts of one, more than one sum of the weight gradient.
const Ints kCounts = {3, 0, 16, 130, 545, 1};

// An expert layer and everything that passes through it; inputs of bfloat16 hold values that it has.
struct Layer {
  Layer(Operators& ops, uint32_t seed, const Ints& counts, int64_t h, int64_t i, DataType of)
      : random(seed),
        hidden(h),
        intermediate(i),
        type(of),
        experts(ops, random, static_cast<int64_t>(counts.size()), h, i, of),
        offsets(1, 0),
        rows(std::accumulate(counts.begin(), counts.end(), 0) + 5),  // five rows more than are in use
        payload(random.normal(rows * h), h, of),
        gradient(random.normal(rows * h), h, of),
        weight(random.normal(rows)),
        gate_up(rows, 2 * i, of),
        output(rows, h, of),
        gate_up_gradient(rows, 2 * i, of),
        weighted(rows, i, of),
        payload_gradient(rows, h, of),
        weight_gradient(rows, NAN) {
    for (int32_t count : counts) offsets.push_back(offsets.back() + count);
  }

  TensorView offset_view() { return view(offsets, {static_cast<int64_t>(offsets.size())}); }
  int64_t used() const { return offsets.back(); }

  void run(Operators& ops) {
    ops.experts(payload.view(), offset_view(), experts.weights(), gate_up.view(), output.view());
    ops.experts_input_gradient({.output_gradient = gradient.view(),
                                .weight = view(weight, {rows}),
                                .gate_up = gate_up.view(),
                                .gate_up_gradient = gate_up_gradient.view(),
                                .weighted = weighted.view(),
                                .weight_gradient = view(weight_gradient, {rows}),
                                .payload_gradient = payload_gradient.view()},
                               offset_view(), experts.weights());
    ops.experts_weight_gradient({.payload = payload.view(),
                                 .output_gradient = gradient.view(),
                                 .gate_up_gradient = gate_up_gradient.view(),
                                 .weighted = weighted.view()},
                                offset_view(), experts.gradients());
  }

  Random random;
  int64_t hidden, intermediate;
  DataType type;
  ExpertSet experts;
  Ints offsets;
  int64_t rows;
  Matrix payload, gradient;
  Floats weight;
  Matrix gate_up, output, gate_up_gradient, weighted, payload_gradient;
  Floats weight_gradient;
};

Floats first_rows(const Floats& values, int64_t rows, int64_t width) {
  return Floats(values.begin(), values.begin() + rows * width);
}

// down (silu(gate x) up x) of one row, in float64.
Doubles expert_output(const double* x, const Doubles& gate, const Doubles& up, const Doubles& down,
                      int64_t hidden, int64_t intermediate) {
  Doubles y(hidden);
  for (int64_t i = 0; i < intermediate; ++i) {
    double g = 0, u = 0;
    for (int64_t h = 0; h < hidden; ++h) {
      g += gate[i * hidden + h] * x[h];
      u += up[i * hidden + h] * x[h];
    }
    const double a = g / (1 + std::exp(-g)) * u;
    for (int64_t h = 0; h < hidden; ++h) y[h] += down[h * intermediate + i] * a;
  }
  return y;
}

class Experts : public ::testing::TestWithParam<DataType> {};

TEST_P(Experts, outputs_are_those_of_the_reference) {
  Rig rig;
  Layer layer(*rig.ops, 1700, kCounts, 24, 40, GetParam());
  layer.run(*rig.ops);
  const Doubles x = widen(layer.payload.values());
  Doubles expected;
  for (size_t e = 0; e + 1 < layer.offsets.size(); ++e) {
    const Doubles gate = widen(layer.experts.gate[e]), up = widen(layer.experts.up[e]),
                  down = widen(layer.experts.down[e]);
    for (int64_t r = layer.offsets[e]; r < layer.offsets[e + 1]; ++r) {
      const Doubles y = expert_output(&x[r * 24], gate, up, down, 24, 40);
      expected.insert(expected.end(), y.begin(), y.end());
    }
  }
  // In bfloat16 gate, up and their product are rounded too.
  const double tolerance = GetParam() == DataType::BFloat16 ? 4 * kHalfUlp : 1e-5;
  expect_close(first_rows(layer.output.values(), layer.used(), 24), expected, tolerance, "output");
}

TEST_P(Experts, all_gradients_are_those_of_differences) {
  // A layer small enough for a loss in float64 to be taken often.
  Rig rig;
  Layer layer(*rig.ops, 1710, {2, 0, 19}, 10, 18, GetParam());
  layer.run(*rig.ops);
  Doubles x = widen(layer.payload.values());
  Doubles weight = widen(layer.weight);
  const Floats g = layer.gradient.values();
  std::vector<Doubles> gate, up, down;
  for (size_t e = 0; e < 3; ++e) {
    gate.push_back(widen(layer.experts.gate[e]));
    up.push_back(widen(layer.experts.up[e]));
    down.push_back(widen(layer.experts.down[e]));
  }
  const auto loss = [&] {
    double total = 0;
    for (size_t e = 0; e < 3; ++e) {
      for (int64_t r = layer.offsets[e]; r < layer.offsets[e + 1]; ++r) {
        const Doubles y = expert_output(&x[r * 10], gate[e], up[e], down[e], 10, 18);
        for (int64_t h = 0; h < 10; ++h) total += weight[r] * y[h] * static_cast<double>(g[r * 10 + h]);
      }
    }
    return total;
  };
  // Two roundings in a row: of gate and up, and of their gradients.
  const double tolerance = GetParam() == DataType::BFloat16 ? 6 * kHalfUlp : 2e-5;
  const auto without_initial = [](Floats gradient) {
    for (float& each : gradient) each -= 0.25f;
    return gradient;
  };
  const auto of_used_rows = [&](Floats values, int64_t width) {
    std::fill(values.begin() + layer.used() * width, values.end(), 0.0f);  // no one writes the rest
    return values;
  };
  expect_gradient(loss, x, of_used_rows(layer.payload_gradient.values(), 10), "payload_gradient", tolerance);
  expect_gradient(loss, weight, of_used_rows(layer.weight_gradient, 1), "weight_gradient", tolerance);
  for (size_t e : {0, 2}) {
    expect_gradient(loss, gate[e], without_initial(layer.experts.gate_gradient[e]), "gate", tolerance);
    expect_gradient(loss, up[e], without_initial(layer.experts.up_gradient[e]), "up", tolerance);
    expect_gradient(loss, down[e], without_initial(layer.experts.down_gradient[e]), "down", tolerance);
  }
}

TEST_P(Experts, an_expert_without_rows_keeps_its_gradients) {
  Rig rig;
  Layer layer(*rig.ops, 1720, {0, 7, 0}, 8, 12, GetParam());
  layer.run(*rig.ops);
  for (size_t e : {0, 2}) {
    for (const std::vector<Floats>* each :
         {&layer.experts.gate_gradient, &layer.experts.up_gradient, &layer.experts.down_gradient}) {
      for (float value : (*each)[e]) ASSERT_EQ(value, 0.25f);
    }
  }
}

TEST_P(Experts, rows_without_use_are_never_written) {
  // The rows of one expert end where those of another, or another thread's, begin.
  Rig rig;
  Layer layer(*rig.ops, 1730, {1, 15, 17}, 8, 12, GetParam());
  layer.run(*rig.ops);
  const Floats output = layer.output.values();
  for (size_t i = static_cast<size_t>(layer.used() * 8); i < output.size(); ++i)
    ASSERT_TRUE(std::isnan(output[i]));
  for (int64_t i = 0; i < layer.used() * 8; ++i) ASSERT_TRUE(std::isfinite(output[i]));
}

TEST_P(Experts, bits_of_an_expert_do_not_depend_on_the_rows_of_the_others) {
  Rig rig;
  Layer alone(*rig.ops, 1740, {0, 545, 0}, 24, 40, GetParam());
  Layer among(*rig.ops, 1740, {0, 545, 0}, 24, 40, GetParam());
  // The same rows behind 77 of the first expert and before 3 of the last.
  const auto shifted = [](const Floats& values, int64_t width) {
    Floats all = Random(1).normal(77 * width);
    all.insert(all.end(), values.begin(), values.begin() + 545 * width);
    const Floats behind = Random(2).normal(3 * width);
    all.insert(all.end(), behind.begin(), behind.end());
    return all;
  };
  const DataType type = GetParam();
  among.offsets = {0, 77, 622, 625};
  among.rows = 625;
  among.payload = Matrix(shifted(alone.payload.values(), 24), 24, type);
  among.gradient = Matrix(shifted(alone.gradient.values(), 24), 24, type);
  among.weight = shifted(alone.weight, 1);
  among.gate_up = Matrix(625, 80, type);
  among.gate_up_gradient = Matrix(625, 80, type);
  among.output = Matrix(625, 24, type);
  among.weighted = Matrix(625, 40, type);
  among.payload_gradient = Matrix(625, 24, type);
  among.weight_gradient.assign(625, NAN);
  alone.run(*rig.ops);
  among.run(*rig.ops);
  const auto same_rows = [](const Floats& of_alone, const Floats& of_among, int64_t width) {
    return std::equal(of_alone.begin(), of_alone.begin() + 545 * width, of_among.begin() + 77 * width);
  };
  EXPECT_TRUE(same_rows(alone.output.values(), among.output.values(), 24));
  EXPECT_TRUE(same_rows(alone.payload_gradient.values(), among.payload_gradient.values(), 24));
  EXPECT_TRUE(same_rows(alone.weight_gradient, among.weight_gradient, 1));
  EXPECT_EQ(alone.experts.gate_gradient[1], among.experts.gate_gradient[1]);
  EXPECT_EQ(alone.experts.up_gradient[1], among.experts.up_gradient[1]);
  EXPECT_EQ(alone.experts.down_gradient[1], among.experts.down_gradient[1]);
}

TEST_P(Experts, weight_gradients_are_sums_over_the_rows_of_each_expert) {
  // Every length of a sum that zeros fill up, one and several sums of an expert, and more than fit into memory at a time.
  Rig rig;
  const Ints counts = {1, 7, 8, 9, 31, 33, 0, 121, 127, 129, 130, 255, 257, 300, 511, 513, 1030, 5};
  Layer layer(*rig.ops, 1735, counts, 40, 136, GetParam());
  layer.run(*rig.ops);
  const Doubles x = widen(layer.payload.values()), g = widen(layer.gradient.values());
  const Doubles gates = widen(layer.gate_up_gradient.values()), weighted = widen(layer.weighted.values());
  for (size_t e = 0; e < counts.size(); ++e) {
    Doubles gate(136 * 40, 0.25), up(136 * 40, 0.25), down(40 * 136, 0.25);
    for (int64_t r = layer.offsets[e]; r < layer.offsets[e + 1]; ++r) {
      for (int64_t i = 0; i < 136; ++i) {
        for (int64_t h = 0; h < 40; ++h) {
          gate[i * 40 + h] += gates[r * 272 + i] * x[r * 40 + h];
          up[i * 40 + h] += gates[r * 272 + 136 + i] * x[r * 40 + h];
          down[h * 136 + i] += g[r * 40 + h] * weighted[r * 136 + i];
        }
      }
    }
    expect_close(layer.experts.gate_gradient[e], gate, 1e-5, "gradient of gate");
    expect_close(layer.experts.up_gradient[e], up, 1e-5, "gradient of up");
    expect_close(layer.experts.down_gradient[e], down, 1e-5, "gradient of down");
  }
}

TEST_P(Experts, a_row_has_the_same_bits_in_every_number_of_rows) {
  // Where tokens go, and over how many ranks, must not show in the rows of the others.
  Rig rig;
  if (!cpu::has_row_invariant_products()) {
    EXPECT_THAT(cpu_fingerprint(), ::testing::HasSubstr("without row-invariant kernels"));
    return;
  }
  constexpr int64_t kHidden = 40, kInner = 136;
  Layer all(*rig.ops, 1745, {300}, kHidden, kInner, GetParam());
  all.run(*rig.ops);
  for (const auto& [first, count] :
       {std::pair<int32_t, int32_t>{0, 1}, {5, 2}, {3, 7}, {1, 8}, {9, 121}, {17, 255}}) {
    Layer some(*rig.ops, 1745, {300}, kHidden, kInner, GetParam());  // the same expert
    some.offsets = {0, count};
    const auto rows_of = [first = first, count = count](const Floats& values, int64_t width) {
      return Floats(values.begin() + first * width, values.begin() + (first + count) * width);
    };
    some.payload = Matrix(rows_of(all.payload.values(), kHidden), kHidden, GetParam());
    some.gradient = Matrix(rows_of(all.gradient.values(), kHidden), kHidden, GetParam());
    some.weight = rows_of(all.weight, 1);
    some.rows = count;
    some.gate_up = some.gate_up_gradient = Matrix(count, 2 * kInner, GetParam());
    some.output = some.payload_gradient = Matrix(count, kHidden, GetParam());
    some.weighted = Matrix(count, kInner, GetParam());
    some.weight_gradient.assign(count, NAN);
    some.run(*rig.ops);
    EXPECT_EQ(some.output.values(), rows_of(all.output.values(), kHidden)) << count;
    EXPECT_EQ(some.payload_gradient.values(), rows_of(all.payload_gradient.values(), kHidden)) << count;
    EXPECT_EQ(some.gate_up_gradient.values(), rows_of(all.gate_up_gradient.values(), 2 * kInner)) << count;
    EXPECT_EQ(some.weighted.values(), rows_of(all.weighted.values(), kInner)) << count;
    EXPECT_EQ(some.weight_gradient, rows_of(all.weight_gradient, 1)) << count;
  }
}

TEST_P(Experts, what_is_no_number_leaves_nothing_behind) {
  // A step that is left out for its norm has filled scratch memory with NaN; zeros that fill up sums must be zeros.
  Rig fresh, used;
  Layer expected(*fresh.ops, 1748, kCounts, 40, 136, GetParam());
  expected.run(*fresh.ops);
  Layer broken(*used.ops, 1748, {512, 512}, 40, 136, GetParam());
  broken.payload = broken.gradient = Matrix(Floats(broken.rows * 40, NAN), 40, GetParam());
  broken.run(*used.ops);
  Layer layer(*used.ops, 1748, kCounts, 40, 136, GetParam());
  layer.run(*used.ops);
  EXPECT_EQ(layer.experts.gate_gradient, expected.experts.gate_gradient);
  EXPECT_EQ(layer.experts.up_gradient, expected.experts.up_gradient);
  EXPECT_EQ(layer.experts.down_gradient, expected.experts.down_gradient);
}

TEST_P(Experts, bits_do_not_depend_on_threads_and_the_gradient_may_overwrite_gate_and_up) {
  for (bool in_place : {false, true}) {
    std::vector<Floats> first;
    expect_same_bits_for_any_thread_count([&](Operators& ops) {
      Layer layer(ops, 1750, kCounts, 136, 200, GetParam());
      if (!in_place) {
        layer.run(ops);
      } else {
        ops.experts(layer.payload.view(), layer.offset_view(), layer.experts.weights(), layer.gate_up.view(),
                    layer.output.view());
        ops.experts_input_gradient({layer.gradient.view(), view(layer.weight, {layer.rows}),
                                    layer.gate_up.view(), layer.gate_up.view(), layer.weighted.view(),
                                    view(layer.weight_gradient, {layer.rows}), layer.payload_gradient.view()},
                                   layer.offset_view(), layer.experts.weights());
        ops.experts_weight_gradient(
            {layer.payload.view(), layer.gradient.view(), layer.gate_up.view(), layer.weighted.view()},
            layer.offset_view(), layer.experts.gradients());
      }
      std::vector<Floats> results = layer.experts.gate_gradient;
      for (const Floats& each : layer.experts.up_gradient) results.push_back(each);
      for (const Floats& each : layer.experts.down_gradient) results.push_back(each);
      results.push_back(first_rows(layer.output.values(), layer.used(), 136));
      results.push_back(first_rows(layer.payload_gradient.values(), layer.used(), 136));
      results.push_back(first_rows(layer.weight_gradient, layer.used(), 1));
      return results;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Experts, ::testing::Values(DataType::Float32, DataType::BFloat16),
                         [](const auto& instance) {
                           return instance.param == DataType::BFloat16 ? "bfloat16" : "float32";
                         });

}  // namespace
}  // namespace penstock::kernels::testing
