#include "plan/forecast/cost_model.h"

#include <gmock/gmock.h>

#include <array>

#include "plan/forecast/testing/jobs.h"
#include "plan/partition/partition.h"

namespace penstock::plan {
namespace {

using ::testing::HasSubstr;
using testing::job_of;

TEST(RatesModel, items_take_what_they_compute_and_move_over_the_rates) {
  const JobSpec job = job_of({});
  const DeviceRates rates = {.flops_per_second = 1e9, .bytes_per_second = 1e10};
  const StatusOr<LayerCostModel> model = rates_model(rates);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->source, "rates of 1 GFLOP/s and 10 GB/s, not measurements");
  EXPECT_FALSE(model->is_measured);
  const StatusOr<JobCosts> costs = model->costs(job);
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->layers.layers.size(), 10u);
  const ItemOperations block = operations_of(job, {ItemKind::Block, LayerIndex(5)});
  const double forward = block.forward.flops / 1e9 + block.forward.bytes / 1e10;
  EXPECT_NEAR(static_cast<double>(costs->layers.forward_ns[6]), 1e9 * forward, 1);
  const double backward = block.backward.flops / 1e9 + block.backward.bytes / 1e10;
  EXPECT_NEAR(static_cast<double>(costs->layers.layers[6].keep.time_ns), 1e9 * (forward + backward), 2);
  ASSERT_EQ(costs->layers.update_ns.size(), 10u);
  EXPECT_NEAR(static_cast<double>(costs->layers.update_ns[6]), 1e9 * block.update.bytes / 1e10, 1);
  EXPECT_EQ(costs->latency_ns, 410);  // 2,048 bytes written and read, 10 a nanosecond
  EXPECT_THAT(message(rates_model({.flops_per_second = 0, .bytes_per_second = 1e9}).status()),
              HasSubstr("device rates: expected 1e3 to 1e21"));
}

// 4B GPT of 32 blocks on 8 A100s, milliseconds as measured (arXiv 2411.05288): block, embedding and head, forward and backward.
struct Published {
  int64_t vocabulary;
  double block, embedding, head;
};
constexpr std::array<Published, 4> kPublished = {
    {{32000, 2.6659 + 5.3312, 0.0975 + 0.6682, 3.9395 + 4.6722},
     {64000, 2.6493 + 5.3053, 0.1300 + 1.3930, 7.1510 + 8.5820},
     {128000, 2.6345 + 5.2584, 0.0612 + 2.3043, 13.6142 + 16.5813},
     {256000, 2.6240 + 5.2354, 0.0760 + 4.2433, 26.3220 + 31.4213}}};

JobSpec gpt_of(int64_t vocabulary) {
  JobSpec job;
  job.model = {.vocab_size = vocabulary,
               .hidden_size = 3072,
               .num_hidden_layers = 32,
               .num_attention_heads = 24,
               .num_key_value_heads = 24,
               .intermediate_size = 8192,  // three matrices as large as its two of 12,288
               .max_position_embeddings = 2048};
  job.data.sequence_length = 2048;
  job.train.global_batch_size = 128;
  job.train.microbatch_size = 1;
  job.train.dtype = "bfloat16";
  return job;
}

int64_t slowest_of(const std::vector<LayerCost>& layers, const std::vector<int>& boundaries) {
  PartitionRequest request;
  request.layers = layers;
  request.ranks = 8;
  request.in_flight.assign(8, 1);
  return evaluate_partition(request, boundaries)->slowest_ns;
}

std::vector<int> best_split(const std::vector<LayerCost>& layers) {
  PartitionRequest request;
  request.layers = layers;
  request.ranks = 8;
  request.in_flight.assign(8, 1);
  return partition(request)->plan.boundaries;
}

std::vector<LayerCost> measured_layers(const Published& published) {
  std::vector<LayerCost> layers(34);
  for (LayerCost& layer : layers) layer.keep.time_ns = std::llround(1e6 * published.block);
  layers.front().keep.time_ns = std::llround(1e6 * published.embedding);
  layers.back().keep.time_ns = std::llround(1e6 * published.head);
  return layers;
}

// What a split is worth is what rates must say; how long it takes they cannot.
TEST(RatesModel, splits_of_published_stages_are_found_and_their_gain_is_met_within_the_error) {
  const LayerCostModel model = *rates_model({.flops_per_second = 312e12, .bytes_per_second = 2.0e12});
  const std::vector<int> uniform = {0, 5, 9, 13, 17, 21, 25, 29, 34};
  for (const Published& published : kPublished) {
    const std::vector<LayerCost> truth = measured_layers(published);
    const std::vector<LayerCost> rates = model.costs(gpt_of(published.vocabulary))->layers.layers;
    const std::vector<int> split = best_split(rates);
    const auto gain = [&](const std::vector<LayerCost>& layers) {
      return 1 - static_cast<double>(slowest_of(layers, split)) /
                     static_cast<double>(slowest_of(layers, uniform));
    };
    EXPECT_NEAR(gain(rates), gain(truth), kRatesError) << published.vocabulary;
    EXPECT_LE(static_cast<double>(slowest_of(truth, split)),
              1.016 * static_cast<double>(slowest_of(truth, best_split(truth))))
        << published.vocabulary;
  }
}

constexpr const char* kTypes = R"({"types": {"embedding": {"forward_ms": 1, "backward_ms": 1},
    "block": {"forward_ms": 4, "backward_ms": 8}, "head": {"forward_ms": 4, "backward_ms": 4}}})";

TEST(FileModel, says_times_of_one_size_and_a_second_forward_where_blocks_recompute) {
  JobSpec job = job_of({});
  job.recompute = {2};
  const StatusOr<LayerCostModel> model = file_model(kTypes, "x.json");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->source, "x.json");
  EXPECT_THAT(model->one_size, HasSubstr("x.json has times of one size of microbatch"));
  const StatusOr<JobCosts> costs = model->costs(job);
  EXPECT_EQ(costs->layers.layers[2].keep.time_ns, 12'000'000);
  EXPECT_EQ(costs->layers.layers[3].keep.time_ns, 16'000'000);
  EXPECT_THAT(message(file_model("{", "x.json").status()), HasSubstr("x.json: "));
  EXPECT_THAT(message(file_model(R"({"layers": []})", "x.json")->costs(job).status()),
              HasSubstr("x.json: layers"));
}

TEST(EmulatedModel, is_that_of_costs_by_layer) {
  const auto model_of = [](const std::string& costs) {
    return *emulated_model(
        job_of({.more = "device: {kind: emulated, costs: {latency: 0.5, " + costs + "}}\n"}));
  };
  const auto by_layer = model_of(
      "layers: {embedding: {forward: 1, backward: 2}, block: {forward: 3, backward: 6}, head: {forward: 10, backward: 19}}");
  ASSERT_TRUE(by_layer.has_value());
  const JobCosts costs = *by_layer->costs(job_of(
      {.more = "device: {kind: emulated, costs: {latency: 0.5, stages: {forward: 1, backward: 2}}}\n"}));
  EXPECT_EQ(costs.layers.layers[0].keep.time_ns, 3'000'000);
  EXPECT_EQ(costs.layers.forward_ns[9], 10'000'000);
  EXPECT_EQ(costs.latency_ns, 500'000);
  EXPECT_FALSE(model_of("stages: {forward: 1, backward: 2}").has_value());
  EXPECT_FALSE(emulated_model(job_of({}))->has_value());
}

}  // namespace
}  // namespace penstock::plan
