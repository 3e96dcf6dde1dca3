#include "kernels/ops/router/token_lanes.h"

#include <gtest/gtest.h>

#include "base/ieee_math.h"
#include "kernels/ops/cpu/exponentials.h"
#include "kernels/ops/testing/experts.h"

namespace penstock::kernels::testing {
namespace {

using cpu::kLanes;
using cpu::Lanes;

struct Sizes {
  int64_t tokens, experts, choices;
};
// Fewer tokens than lanes, as many, more; experts that leave lanes empty, fill them, and pass the four sums of a dot.
constexpr Sizes kSizes[] = {{1, 1, 1},   {3, 2, 1},   {15, 5, 2},  {16, 8, 2},  {17, 8, 8},  {33, 15, 4},
                            {16, 16, 3}, {40, 17, 6}, {21, 40, 8}, {18, 64, 2}, {35, 65, 9}, {130, 150, 5}};

// Small whole numbers are often equal, large ones leave probabilities of zero.
Floats logits_of(Random& random, const Sizes& s, bool whole, float scale) {
  Floats logits = random.normal(s.tokens * s.experts, scale);
  for (float& each : logits) each = whole ? std::round(each) : each;
  return logits;
}

// One token after another, with the operations of a row.
struct Plain {
  Floats probabilities, log_sum_exp, weight;
  Ints expert;
};
Plain routed_plainly(Floats logits, const Sizes& s, bool normalise) {
  Plain plain;
  for (int64_t t = 0; t < s.tokens; ++t) {
    float* const row = &logits[t * s.experts];
    const cpu::Exponentials of_row = cpu::exponentials(row, s.experts);
    for (int64_t e = 0; e < s.experts; ++e) row[e] /= of_row.sum;
    plain.log_sum_exp.push_back(of_row.largest + static_cast<float>(natural_log(of_row.sum)));
    Ints chosen;
    float total = 0;
    while (std::ssize(chosen) < s.choices) {
      int32_t best = -1;
      for (int32_t e = 0; e < s.experts; ++e) {
        if (std::find(chosen.begin(), chosen.end(), e) != chosen.end()) continue;
        if (best < 0 || row[e] > row[best]) best = e;
      }
      chosen.push_back(best);
      total += row[best];
    }
    for (const int32_t e : chosen) plain.weight.push_back(normalise ? row[e] / total : row[e]);
    plain.expert.insert(plain.expert.end(), chosen.begin(), chosen.end());
  }
  plain.probabilities = std::move(logits);
  return plain;
}

TEST(TokenLanes, routes_have_the_bits_of_one_token_after_another) {
  // Checkpoints and other ranks' replicas were routed like that: a bit that moves sends a token elsewhere.
  Rig rig;
  Random random(1560);
  for (const Sizes& s : kSizes) {
    Floats identity(s.experts * s.experts);
    for (int64_t e = 0; e < s.experts; ++e) identity[e * s.experts + e] = 1;
    for (const bool whole : {false, true}) {
      for (const float scale : {0.5f, 2.0f, 60.0f}) {
        Floats logits = logits_of(random, s, whole, scale);
        for (const bool normalise : {false, true}) {
          const Plain plain = routed_plainly(logits, s, normalise);
          RoutingStorage routing(s.tokens, s.experts, s.choices);
          rig->router(view(logits, {s.tokens, s.experts}), view(identity, {s.experts, s.experts}), normalise,
                      routing.views());
          const std::string where =
              fmt::format("{} tokens, {} experts, {} choices", s.tokens, s.experts, s.choices);
          ASSERT_EQ(routing.expert, plain.expert) << where;
          ASSERT_EQ(routing.probabilities, plain.probabilities) << where;
          ASSERT_EQ(routing.log_sum_exp, plain.log_sum_exp) << where;
          ASSERT_EQ(routing.weight, plain.weight) << where;
        }
      }
    }
  }
}

// router/contract.h, one token after another.
Floats gradient_plainly(const Plain& routed, const Floats& dw, const Sizes& s, bool normalise,
                        const RouterLossScales& scales) {
  Floats pull(s.experts);
  for (const int32_t e : routed.expert) pull[e] += 1;
  const double of_choice = static_cast<double>(s.experts) / static_cast<double>(s.choices * s.tokens);
  for (float& each : pull) {
    each *= static_cast<float>(of_choice);
    each *= static_cast<float>(scales.balance / static_cast<double>(s.tokens));
  }
  Floats gradient;
  for (int64_t t = 0; t < s.tokens; ++t) {
    const float* const p = &routed.probabilities[t * s.experts];
    const int64_t first = t * s.choices;
    float mean = 0;
    float total = normalise ? 0 : 1;
    for (int64_t k = first; k < first + s.choices && normalise; ++k) {
      total += p[routed.expert[k]];
      mean += dw[k] * routed.weight[k];
    }
    Floats d = pull;
    for (int64_t k = first; k < first + s.choices; ++k) d[routed.expert[k]] += (dw[k] - mean) / total;
    const float shared = cpu::dot(p, d.data(), s.experts);
    const float z = 2 * static_cast<float>(scales.z) * routed.log_sum_exp[t];
    for (int64_t e = 0; e < s.experts; ++e) gradient.push_back(p[e] * (d[e] - shared + z));
  }
  return gradient;
}

TEST(TokenLanes, gradients_have_the_bits_of_one_token_after_another) {
  Rig rig;
  Random random(1570);
  const RouterLossScales scales{0.3, 0.01};
  for (const Sizes& s : kSizes) {
    for (const bool normalise : {false, true}) {
      Plain routed = routed_plainly(logits_of(random, s, true, 2), s, normalise);
      Floats dw = random.normal(s.tokens * s.choices);
      const Floats expected = gradient_plainly(routed, dw, s, normalise, scales);
      Floats gradient(s.tokens * s.experts, NAN);
      const Routing views{view(routed.probabilities, {s.tokens, s.experts}),
                          view(routed.log_sum_exp, {s.tokens}),
                          TensorView(routed.expert.data(), DataType::Int32, {s.tokens, s.choices}),
                          view(routed.weight, {s.tokens, s.choices})};
      rig->router_gradient(views, normalise, view(dw, {s.tokens, s.choices}), {1, s.tokens}, scales,
                           view(gradient, {s.tokens, s.experts}));
      ASSERT_EQ(gradient, expected) << s.tokens << " tokens, " << s.experts << " experts";
    }
  }
}

TEST(TokenLanes, the_logarithm_has_the_bits_of_the_plain_one) {
  Random random(1580);
  Floats x = {1,     2,      0.70710678f, 0.7071068f, 1.4142135f, 1.4142137f,
              3e38f, 2e-38f, 1e-45f,      8,          256,        1 + 1e-7f};
  while (x.size() % kLanes != 0) x.push_back(static_cast<float>(x.size()));
  for (const float each : random.normal(4096, 20)) x.push_back(std::exp(each));
  Doubles log(x.size());
  cpu::vectorised([&]() PENSTOCK_INLINE {
    for (size_t i = 0; i < x.size(); i += kLanes) {
      const Lanes values = cpu::load(&x[i]);
      const cpu::DoubleLanes logs[] = {cpu::natural_log(cpu::lower_doubles(values)),
                                       cpu::natural_log(cpu::upper_doubles(values))};
      std::memcpy(&log[i], logs, sizeof(logs));
    }
  });
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(log[i], natural_log(static_cast<double>(x[i]))) << x[i];
}

TEST(TokenLanes, a_token_without_numbers_does_not_touch_its_neighbours) {
  // Sixteen tokens share registers.
  constexpr int64_t kExperts = 5, kChoices = 3;
  Random random(1590);
  const Floats good = random.normal(kExperts * kLanes);
  const auto route = [](Floats columns) {
    Floats left(columns.size()), log(kLanes);
    Ints chosen(kChoices * kLanes);
    cpu::vectorised([&]() PENSTOCK_INLINE {
      cpu::store(log.data(), cpu::softmax_of_columns(columns.data(), kExperts));
      cpu::choose_largest(columns.data(), kExperts, kChoices, left.data(), chosen.data());
    });
    for (int64_t t = 0; t < kLanes; ++t) columns.push_back(log[t]);
    return std::pair(columns, chosen);
  };
  Floats mixed = good;
  mixed[2 * kLanes + 3] = NAN;
  mixed[4 * kLanes + 7] = INFINITY;
  for (int64_t e = 0; e < kExperts; ++e) mixed[e * kLanes + 12] = -INFINITY;
  const auto [expected, expected_choices] = route(good);
  const auto [values, choices] = route(mixed);
  for (int64_t t = 0; t < kLanes; ++t) {
    const bool number = t != 3 && t != 7 && t != 12;
    for (int64_t e = 0; e <= kExperts; ++e) {
      const float value = values[e * kLanes + t];
      EXPECT_TRUE(number ? value == expected[e * kLanes + t] : std::isnan(value)) << t << " " << e;
    }
    for (int64_t k = 0; k < kChoices; ++k)
      EXPECT_EQ(choices[k * kLanes + t], number ? expected_choices[k * kLanes + t] : k) << t;
  }
}

}  // namespace
}  // namespace penstock::kernels::testing
