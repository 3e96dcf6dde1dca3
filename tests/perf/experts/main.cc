// penstock-perf-experts: a layer of routed experts against a dense one of the same active operations, on one thread, in
// turns. Prints one JSON object for each size:
//   experts_over_dense    CPU time of the layer with experts over that of the dense one: median over the turns
//   experts_over_dense_wall   the same of the wall clock, which the other programs of the machine move
//   products_ratio        its floor: the same of their matrix products alone, by plain oneDNN, of balanced experts
//   experts_over_products, dense_over_products   each layer over its own products alone
//   rows_of_experts       how many rows the router gave each expert
// With --profile also, on stderr, where the layers' time goes.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "kernels/device/compute_threads.h"
#include "tests/perf/experts/layers.h"
#include "tests/perf/measure/bare_products.h"
#include "tests/perf/measure/times.h"

namespace penstock::perf {
namespace {

constexpr double kSecondsOfTurn = 0.01;  // of one layer: it runs as often as fits in

// One of the things that are compared, and how long each of its turns took, for one run.
class Contender {
 public:
  explicit Contender(std::function<void()> run) : run_(std::move(run)) {
    run_();  // makes its products
    const Times start = Times::now();
    run_();
    repetitions_ = std::max<int>(1, static_cast<int>(kSecondsOfTurn / (Times::now() - start).cpu));
  }

  void take_turn() {
    const Times start = Times::now();
    for (int i = 0; i < repetitions_; ++i) run_();
    const Times all = Times::now() - start;
    turns_.push_back({all.cpu / repetitions_, all.wall / repetitions_});
  }
  double seconds() const {
    std::vector<double> values;
    for (const Times& turn : turns_) values.push_back(turn.cpu);
    return median(values);
  }
  // Turns lie beside each other: what disturbs the machine for longer than one disturbs both.
  double over(const Contender& other, double Times::*clock) const {
    std::vector<double> ratios;
    for (size_t i = 0; i < turns_.size(); ++i) ratios.push_back(turns_[i].*clock / (other.turns_[i].*clock));
    return median(ratios);
  }

 private:
  std::function<void()> run_;
  int repetitions_ = 1;
  std::vector<Times> turns_;
};

void print_parts(const char* name, const Layer& layer, int turns) {
  std::vector<std::vector<double>> seconds(layer.parts().size());
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < seconds.size(); ++i) {
      const Times start = Times::now();
      layer.parts()[i].run();
      seconds[i].push_back((Times::now() - start).cpu);
    }
  }
  for (size_t i = 0; i < seconds.size(); ++i) {
    std::cerr << fmt::format("  {:8} {:26} {:9.1f} us\n", name, layer.parts()[i].name,
                             1e6 * median(seconds[i]));
  }
}

void print_products(const char* name, BareProducts& products) {
  for (const BareProducts::Row& row : products.profile()) {
    std::cerr << fmt::format("  {:8} {:26} {:9.1f} us  {:4.0f} GFLOP/s\n", name, row.product.name,
                             1e6 * row.seconds, flops(row.product) / row.seconds / 1e9);
  }
}

void measure(const LayerShape& shape, int turns, bool profile) {
  kernels::ComputeThreads threads(1);
  const auto ops = kernels::make_cpu_operators(threads);
  const Layer dense_layer = Layer::dense(*ops, shape);
  const Layer experts_layer = Layer::experts(*ops, shape);
  BareProducts dense_products(products_of_dense(shape), shape.type);
  BareProducts experts_products(products_of_experts(shape), shape.type);
  Contender dense([&] { dense_layer.run(); }), experts([&] { experts_layer.run(); });
  Contender products_of_dense([&] { dense_products.run(); });
  Contender products_of_experts([&] { experts_products.run(); });
  for (int turn = 0; turn < turns; ++turn) {
    for (Contender* each : {&dense, &experts, &products_of_dense, &products_of_experts}) each->take_turn();
  }
  const nlohmann::ordered_json result = {
      {"benchmark", "experts"},
      {"dtype", shape.type == kernels::DataType::BFloat16 ? "bfloat16" : "float32"},
      {"case", fmt::format("{} tokens, hidden {}", shape.tokens, shape.hidden)},
      {"tokens", shape.tokens},
      {"hidden", shape.hidden},
      {"intermediate", shape.intermediate},
      {"experts", shape.experts},
      {"choices", shape.choices},
      {"rows_of_experts", experts_layer.rows_of_experts()},
      {"fingerprint", kernels::cpu_fingerprint()},
      {"turns", turns},
      {"dense_seconds", dense.seconds()},
      {"experts_seconds", experts.seconds()},
      {"experts_over_dense", experts.over(dense, &Times::cpu)},
      {"experts_over_dense_wall", experts.over(dense, &Times::wall)},
      {"products_ratio", products_of_experts.over(products_of_dense, &Times::cpu)},
      {"dense_over_products", dense.over(products_of_dense, &Times::cpu)},
      {"experts_over_products", experts.over(products_of_experts, &Times::cpu)},
  };
  std::cout << result.dump() << std::endl;
  if (!profile) return;
  print_parts("dense", dense_layer, turns);
  print_products("products", dense_products);
  print_parts("experts", experts_layer, turns);
  print_products("products", experts_products);
}

}  // namespace
}  // namespace penstock::perf

int main(int argc, char** argv) {
  using penstock::kernels::DataType;
  std::string dtype = "float32";
  int turns = 25;
  bool profile = false;
  std::vector<int64_t> tokens = {512, 2048};
  std::vector<int64_t> hidden = {128, 512};
  int64_t experts = 8;
  CLI::App app("A layer of routed experts against a dense one of the same active operations, on one thread");
  app.add_option("--dtype", dtype, "bfloat16 or float32")->check(CLI::IsMember({"bfloat16", "float32"}));
  app.add_option("--repetitions", turns, "Turns of each")->check(CLI::Range(1, 1000));
  app.add_option("--tokens", tokens, "Tokens of a call")->check(CLI::Range(4, 1 << 16))->delimiter(',');
  app.add_option("--hidden", hidden, "Hidden sizes")->check(CLI::Range(16, 1 << 13))->delimiter(',');
  app.add_option("--experts", experts, "Experts, two of which a token goes to")->check(CLI::Range(2, 256));
  app.add_flag("--profile", profile, "Say on stderr where the time goes");
  CLI11_PARSE(app, argc, argv);
  for (const int64_t t : tokens) {
    for (const int64_t h : hidden) {
      penstock::perf::measure({.tokens = t,
                               .hidden = h,
                               .intermediate = h * 11 / 4,
                               .experts = experts,
                               .type = dtype == "bfloat16" ? DataType::BFloat16 : DataType::Float32},
                              turns, profile);
    }
  }
  return 0;
}
