// Shared experts beside routed ones, against the same formulas written out in float64; gradients by its differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "worker/model/testing/expert_group.h"

namespace penstock::worker {
namespace {

using Doubles = std::vector<double>;

constexpr double kTolerance = 1e-5;

// A block whose attention adds nothing, so that it is x + shared(norm(x)) + routed(norm(x)); without the router's losses.
plan::JobSpec job_without_losses() {
  plan::JobSpec job = job_of({.ranks = 1, .shared = 3});
  job.model.moe.router_aux_loss_coef = job.model.moe.router_z_loss_coef = 0;
  return job;
}

void silence_attention(ParameterStore& parameters) {
  const kernels::TensorView output = parameters.at("model.layers.0.self_attn.o_proj.weight").weight;
  std::fill(output.f32(), output.f32() + output.elements(), 0.0f);
}

class Reference {
 public:
  Reference(const plan::JobSpec& job, const ParameterStore& parameters)
      : x(rows_of(job, BlockRank::kInputSeed)),
        job_(job),
        hidden_(static_cast<size_t>(job.model.hidden_size)),
        output_gradient_(rows_of(job, BlockRank::kGradientSeed)) {
    for (const Parameter& parameter : parameters.parameters()) {
      const float* const values = parameter.weight.f32();
      weights[parameter.spec.name] = Doubles(values, values + parameter.weight.elements());
    }
  }

  Doubles output() const {
    Doubles output;
    for (size_t first = 0; first < x.size(); first += hidden_) {
      const Doubles token(x.begin() + static_cast<int64_t>(first),
                          x.begin() + static_cast<int64_t>(first + hidden_));
      const Doubles of_token = block(token);
      output.insert(output.end(), of_token.begin(), of_token.end());
    }
    return output;
  }

  // What gradient() moves.
  Doubles x;
  std::map<std::string, Doubles> weights;

  // Of the sum of output times its gradient, with respect to `values`, which are x or weights.
  Doubles gradient(Doubles& values) const {
    constexpr double kStep = 1e-6;
    Doubles gradient;
    for (double& value : values) {
      const double kept = value;
      value = kept + kStep;
      const double above = loss();
      value = kept - kStep;
      gradient.push_back((above - loss()) / (2 * kStep));
      value = kept;
    }
    return gradient;
  }

 private:
  static Doubles rows_of(const plan::JobSpec& job, uint32_t seed) {
    RandomRows rows(job, job.tokens_per_microbatch());
    for (int64_t s = 0; s < job.train.microbatch_size; ++s) rows.fill(s, job.data.sequence_length, s, seed);
    const kernels::TensorView view = rows.view();
    return Doubles(view.f32(), view.f32() + view.elements());
  }

  double loss() const {
    const Doubles all = output();
    return std::inner_product(all.begin(), all.end(), output_gradient_.begin(), 0.0);
  }

  Doubles product(const std::string& name, const Doubles& in) const {
    const Doubles& weight = weights.at("model.layers.0.mlp." + name + ".weight");
    Doubles out(weight.size() / in.size(), 0.0);
    for (size_t i = 0; i < weight.size(); ++i) out[i / in.size()] += weight[i] * in[i % in.size()];
    return out;
  }

  Doubles network(const std::string& name, const Doubles& in) const {
    const Doubles gate = product(name + ".gate_proj", in), up = product(name + ".up_proj", in);
    Doubles activated;
    for (size_t i = 0; i < gate.size(); ++i) activated.push_back(gate[i] / (1 + std::exp(-gate[i])) * up[i]);
    return product(name + ".down_proj", activated);
  }

  // Of the chosen experts: softmax over those alone is what their probabilities become when they are made to sum to one.
  std::map<size_t, double> choices(const Doubles& normed) const {
    const Doubles logits = product("gate", normed);
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    order.resize(static_cast<size_t>(job_.model.moe.num_experts_per_tok));
    double sum = 0;
    for (const size_t expert : order) sum += std::exp(logits[expert]);
    std::map<size_t, double> weights_of;
    for (const size_t expert : order) weights_of[expert] = std::exp(logits[expert]) / sum;
    return weights_of;
  }

  Doubles block(const Doubles& token) const {
    const double mean = std::inner_product(token.begin(), token.end(), token.begin(), 0.0) /
                        static_cast<double>(token.size());
    Doubles normed = token;
    for (double& value : normed) value /= std::sqrt(mean + job_.model.rms_norm_eps);
    Doubles output = token;
    const auto add = [&](double factor, const Doubles& addend) {
      for (size_t i = 0; i < output.size(); ++i) output[i] += factor * addend[i];
    };
    add(1, network("shared_experts", normed));
    for (const auto& [expert, weight] : choices(normed)) {
      add(weight, network(fmt::format("experts.{}", expert), normed));
    }
    return output;
  }

  const plan::JobSpec& job_;
  size_t hidden_;
  Doubles output_gradient_;
};

std::vector<float> floats(const std::vector<char>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// Largest difference, over the largest expected value.
double relative_error(const std::vector<float>& found, const Doubles& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0, scale = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference = std::max(difference, std::abs(found[i] - expected[i]));
    scale = std::max(scale, std::abs(expected[i]));
  }
  EXPECT_GT(scale, 0);
  return difference / scale;
}

TEST(SharedExperts, add_to_the_routed_ones_what_their_formula_says) {
  const plan::JobSpec job = job_without_losses();
  const auto block = alone(
      job,
      [](BlockRank& rank) -> Status {
        PENSTOCK_RETURN_IF_ERROR(rank.forward(0));
        return rank.backward(0);
      },
      silence_attention);
  Reference reference(job, block->parameters());
  EXPECT_LT(relative_error(floats(block->outputs().at(0)), reference.output()), kTolerance);
  EXPECT_LT(relative_error(floats(block->input_gradients().at(0)), reference.gradient(reference.x)),
            kTolerance);
  for (const char* part : {"shared_experts.gate_proj", "shared_experts.up_proj", "shared_experts.down_proj",
                           "gate", "experts.2.gate_proj", "experts.2.down_proj"}) {
    const std::string name = fmt::format("model.layers.0.mlp.{}.weight", part);
    EXPECT_LT(relative_error(block->gradients().at(name), reference.gradient(reference.weights.at(name))),
              kTolerance)
        << part;
  }
}

}  // namespace
}  // namespace penstock::worker
