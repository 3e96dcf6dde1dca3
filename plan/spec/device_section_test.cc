#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/spec/cost_source.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A job of two ranks with one stage each, whose boundary tensors have 8 tokens x 8 x 4 = 256 bytes.
std::string job(const std::string& device, const std::string& more = "") {
  return "name: rehearsed\n"
         "model: {vocab_size: 256, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 8,\n"
         "  max_position_embeddings: 8}\n"
         "data: {source: /text.txt, sequence_length: 8}\n"
         "train: {steps: 1, global_batch_size: 2, microbatch_size: 1}\n"
         "parallel: {pipeline: 2}\n"
         "device: " +
         device + "\n" + more;
}

JobSpec read(const std::string& device, const std::string& more = "") {
  const StatusOr<JobSpec> spec = parse_job_spec(job(device, more));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return spec.value_or(JobSpec{});
}

std::string refusal(const std::string& device) {
  const StatusOr<JobSpec> spec = parse_job_spec(job(device));
  EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument) << device;
  return message(spec.status());
}

std::string emulated(const std::string& costs, const std::string& more = "") {
  return "{kind: emulated, costs: {" + costs + "}" + more + "}";
}

TEST(DeviceSection, costs_are_milliseconds_unless_they_have_a_unit) {
  const JobSpec spec = read(emulated(
      "stages: [{forward: 5, input_gradient: 0.25, weight_gradient: 1us}, {forward: 2s, backward: 7ns}], latency: 20us"));
  ASSERT_EQ(spec.device.costs.stages.size(), 2u);
  EXPECT_EQ(spec.device.costs.stages[0].forward_ns, 5'000'000);
  EXPECT_EQ(spec.device.costs.stages[0].input_gradient_ns, 250'000);
  EXPECT_EQ(spec.device.costs.stages[0].weight_gradient_ns, 1'000);
  EXPECT_EQ(spec.device.costs.stages[0].backward_ns, 251'000);  // a fused one is both
  EXPECT_EQ(spec.device.costs.stages[1].forward_ns, 2'000'000'000);
  EXPECT_EQ(spec.device.costs.stages[1].backward_ns, 7);
  EXPECT_EQ(spec.device.costs.latency_ns, 20'000);
  EXPECT_EQ(spec.device.costs.message_ns, 0);
  EXPECT_TRUE(spec.device.emulated());
  EXPECT_FALSE(spec.device.posts_at_consumer);
}

TEST(DeviceSection, stage_takes_what_its_layers_take) {
  const std::string layers =
      "layers: {embedding: {forward: 1, backward: 2}, block: {forward: 10, backward: 20}, head: {forward: 5, backward: 7}}";
  const JobSpec spec = read(emulated(layers, ", time_factor: 2"));
  ASSERT_EQ(spec.device.costs.stages.size(), 2u);
  int64_t forward = 0, backward = 0;
  for (size_t stage = 0; stage < 2; ++stage) {
    int64_t expected = 0;
    for (const Item& item : spec.parallel.split[stage])
      expected += item.kind == ItemKind::Block ? 10 : item.kind == ItemKind::Head ? 5 : 1;
    EXPECT_EQ(spec.device.costs.stages[stage].forward_ns, 2'000'000 * expected);
    forward += spec.device.costs.stages[stage].forward_ns;
    backward += spec.device.costs.stages[stage].backward_ns;
  }
  const int64_t blocks = spec.model.num_hidden_layers;
  EXPECT_EQ(forward, 2'000'000 * (6 + 10 * blocks));
  EXPECT_EQ(backward, 2'000'000 * (9 + 20 * blocks));
}

TEST(DeviceSection, costs_of_layers_are_there_for_who_plans_the_split) {
  const JobSpec spec = read(emulated(
      "layers: {embedding: {forward: 1, backward: 2}, block: {forward: 10, backward: 20}, head: {forward: 5, backward: 7}}"));
  const auto costs = costs_of_layers(spec);
  ASSERT_TRUE(costs.ok()) << costs.status();
  ASSERT_EQ(costs->size(), static_cast<size_t>(spec.model.num_hidden_layers) + 2);
  EXPECT_EQ(costs->front().forward_ns, 1'000'000);
  EXPECT_EQ((*costs)[1].backward_ns, 20'000'000);
  EXPECT_EQ(costs->back().backward_ns, 7'000'000);
  EXPECT_TRUE(costs_of_layers(read(emulated("stages: {forward: 1, backward: 2}")))->empty());
}

TEST(DeviceSection, layers_that_are_not_the_models_are_refused) {
  EXPECT_THAT(
      refusal(emulated("layers: {block: {forward: 1, backward: 1}, head: {forward: 1, backward: 1}}")),
      HasSubstr("device.costs.layers.embedding: expected a value"));
  EXPECT_THAT(
      refusal(emulated("layers: {embedding: {forward: 1, backward: 1}, block: [{forward: 1, backward: 1}], "
                       "head: {forward: 1, backward: 1}}")),
      HasSubstr("device.costs.layers.block: expected a section for all blocks, or a list of"));
  EXPECT_THAT(
      refusal(emulated("stages: {forward: 1, backward: 1}, layers: {embedding: {forward: 1, backward: 1}, "
                       "block: {forward: 1, backward: 1}, head: {forward: 1, backward: 1}}")),
      HasSubstr("device.costs.stages: expected it or device.costs.layers, found both"));
}

TEST(DeviceSection, one_section_is_of_all_stages) {
  const JobSpec spec = read(emulated("stages: {forward: 5, backward: 9}, overlapped_pair: 12"));
  ASSERT_EQ(spec.device.costs.stages.size(), 2u);
  EXPECT_EQ(spec.device.costs.stages[1].backward_ns, 9'000'000);
  EXPECT_EQ(spec.device.costs.overlapped_pair_ns, 12'000'000);
}

TEST(DeviceSection, a_tensor_passes_its_link_as_fast_as_bytes_per_second_say) {
  // 256 bytes at 3 bytes a second: 85.333... s, rounded up to a nanosecond.
  EXPECT_EQ(read(emulated("stages: {forward: 1, backward: 1}, bytes_per_second: 3B")).device.costs.message_ns,
            85'333'333'334);
  EXPECT_EQ(
      read(emulated("stages: {forward: 1, backward: 1}, bytes_per_second: 1KB")).device.costs.message_ns,
      256'000'000);
}

TEST(DeviceSection, time_factor_stretches_every_time) {
  const EmulatedCosts costs =
      read(
          emulated("stages: {forward: 5, backward: 9}, latency: 2, overlapped_pair: 4, bytes_per_second: 1KB",
                   ", time_factor: 0.5"))
          .device.costs;
  EXPECT_EQ(costs.stages[0].forward_ns, 2'500'000);
  EXPECT_EQ(costs.stages[0].backward_ns, 4'500'000);
  EXPECT_EQ(costs.latency_ns, 1'000'000);
  EXPECT_EQ(costs.overlapped_pair_ns, 2'000'000);
  EXPECT_EQ(costs.message_ns, 128'000'000);
}

TEST(DeviceSection, emulated_pipelines_do_not_stand_side_by_side) {
  std::string text = job(emulated("stages: {forward: 1, backward: 1}"));
  text.replace(text.find("pipeline: 2"), 11, "pipeline: 2, data: 2");
  EXPECT_EQ(
      message(parse_job_spec(text).status()),
      "line 7: device.kind: expected cpu with 2 pipelines side by side (parallel.expert x data), since nothing "
      "models what passes between them, found emulated");
}

TEST(DeviceSection, what_is_wrong_is_told_by_line_and_field) {
  EXPECT_THAT(refusal("{kind: cuda}"), HasSubstr("line 7: device.kind: not built yet"));
  EXPECT_THAT(refusal("{kind: emulatd}"), HasSubstr("did you mean emulated?"));
  EXPECT_THAT(refusal("{kind: emulated}"), HasSubstr("line 7: device.costs: expected a value"));
  EXPECT_THAT(refusal("{kind: emulated, costs: h100.json}"),
              HasSubstr("as `penstock submit` writes them, found h100.json"));
  EXPECT_THAT(refusal("{kind: cpu, costs: {stages: []}}"),
              HasSubstr("line 7: device.costs: expected it beside kind: emulated only, found kind: cpu"));
  EXPECT_THAT(refusal("{time_factor: 2}"),
              HasSubstr("device.time_factor: expected it beside kind: emulated"));
  EXPECT_THAT(refusal("{posting: early}"), HasSubstr("device.posting"));
  EXPECT_THAT(refusal(emulated("latency: 1")), HasSubstr("device.costs.stages: expected a value"));
  EXPECT_THAT(
      refusal(emulated("stages: [{forward: 1, backward: 1}]")),
      HasSubstr("device.costs.stages: expected a section for all stages, or a list of 2, one a stage"));
  EXPECT_THAT(refusal(emulated("stages: {backward: 1}")),
              HasSubstr("device.costs.stages.forward: expected a value"));
  EXPECT_THAT(refusal(emulated("stages: [{forward: 1, backward: 1}, {forward: 1, input_gradient: 1}]")),
              HasSubstr("device.costs.stages[1].weight_gradient: expected a value"));
  EXPECT_THAT(refusal(emulated("stages: {forward: 1, backward: 1, W: 1}")),
              HasSubstr("device.costs.stages.W"));
  EXPECT_THAT(refusal(emulated("stages: {forward: 1, backward: 1}, bytes_per_second: fast")),
              HasSubstr("device.costs.bytes_per_second: expected bytes a second"));
  EXPECT_THAT(refusal(emulated("stages: {forward: 1, backward: 1}", ", time_factor: 0")),
              HasSubstr("device.time_factor: expected a finite number above 0"));
  EXPECT_THAT(refusal(emulated("stages: {forward: 1, backward: 1}", ", posting: late")),
              HasSubstr("device.posting: expected one of early, at-consumer"));
}

TEST(DeviceSection, times_that_are_none_are_refused) {
  for (const char* text : {"-1", "", "ms", "1.0.0", "1e3", "0.0000001", "5 minutes", "3601s", "1ns ", "0.5ns",
                           "nan", "99999999999999999999", "+1", "1.-5"}) {
    EXPECT_THAT(refusal(emulated("stages: {forward: \"" + std::string(text) + "\", backward: 1}")),
                HasSubstr("device.costs.stages.forward: expected milliseconds, or a time such as"))
        << text;
  }
  // An hour is the longest, the factor with it.
  EXPECT_EQ(read(emulated("stages: {forward: 3600s, backward: 1}")).device.costs.stages[0].forward_ns,
            3'600'000'000'000);
  EXPECT_THAT(refusal(emulated("stages: {forward: 1801s, backward: 1}", ", time_factor: 2")),
              HasSubstr("an hour"));
}

TEST(DeviceSection, what_an_emulated_device_leaves_out_is_said) {
  const JobSpec spec = read(emulated("stages: {forward: 1, backward: 1}", ", threads: 2"),
                            "validation: {source: /held.txt, every: 1}\n");
  EXPECT_EQ(spec.validation.every, 0);
  EXPECT_THAT(spec.notes, ElementsAre(HasSubstr("device.threads: without effect on emulated"),
                                      HasSubstr("validation: without effect on emulated")));
}

TEST(CostSource, the_costs_of_a_file_travel_in_the_text) {
  CostNumbers numbers{.stages = {{"5", "4.5", "3", ""}, {"6", "", "", "11"}},
                      .overlapped_pair = "",
                      .latency = "0.02",
                      .bytes_per_second = "25000000000"};
  for (const std::string device :
       {"{kind: emulated, costs: h100.json}", "\n  costs: \"h100.json\"  # measured\n  kind: emulated"}) {
    ASSERT_EQ(cost_source(job(device)).value(), "h100.json");
    const std::string text = with_costs(job(device), numbers).value();
    EXPECT_THAT(
        text,
        HasSubstr("costs: {file: \"h100.json\", latency: 0.02, bytes_per_second: 25000000000, stages: "
                  "[{forward: 5, input_gradient: 4.5, weight_gradient: 3}, {forward: 6, backward: 11}]}"));
    EXPECT_EQ(cost_source(text).value(), "");  // there is nothing to read any more
    const StatusOr<JobSpec> spec = parse_job_spec(text);
    ASSERT_TRUE(spec.ok()) << spec.status();
    EXPECT_EQ(spec->device.costs.stages[0].backward_ns, 7'500'000);
    EXPECT_EQ(spec->device.costs.stages[1].backward_ns, 11'000'000);
  }
}

TEST(CostSource, a_job_without_a_file_has_none_to_put_costs_into) {
  const std::string text = job("{kind: cpu}");
  EXPECT_EQ(cost_source(text).value(), "");
  EXPECT_EQ(with_costs(text, {}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace penstock::plan
