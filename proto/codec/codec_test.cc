#include "proto/codec/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "proto/codec/wire.h"

namespace penstock::codec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

AttemptKey attempt() {
  return {"quickstart-2", 3, 41};
}

plan::Instruction compute(int stage, plan::ActionKind kind, int microbatch) {
  plan::Instruction instruction;
  instruction.work = {StageIndex(stage), kind, MicrobatchIndex(microbatch)};
  return instruction;
}

plan::RankProgram program() {
  plan::RankProgram program;
  program.rank = RankIndex(1);
  program.ranks = 2;
  program.stages = 2;
  program.microbatches = 1;
  program.buffers = {{.stage = StageIndex(1),
                      .activation_slots = 1,
                      .backward = plan::BackwardForm::Split,
                      .replica = 1,
                      .twin = RankIndex(0)}};
  program.links = {{RankIndex(0), RankIndex(1), 1, 4, 2, 0xfedcba9876543210, 1}};
  plan::Instruction receive = compute(1, plan::ActionKind::Forward, 0);
  receive.kind = plan::InstructionKind::PostReceive;
  receive.peer = RankIndex(0);
  receive.slot = 3;
  plan::Instruction update;
  update.kind = plan::InstructionKind::OptimizerStep;
  plan::Instruction validate;
  validate.kind = plan::InstructionKind::ValidateStep;
  program.instructions = {receive, validate, compute(1, plan::ActionKind::Forward, 0),
                          compute(1, plan::ActionKind::Backward, 0), update};
  return program;
}

Assignment assignment() {
  Assignment assignment;
  assignment.attempt = attempt();
  assignment.rank = RankIndex(1);
  assignment.device = 2;
  assignment.spec_yaml = "name: quickstart\n";
  assignment.split = {{{plan::ItemKind::Embedding, {}}, {plan::ItemKind::Block, LayerIndex(0)}},
                      {{plan::ItemKind::Head, {}}}};
  assignment.program = program();
  assignment.first_step = 50;
  assignment.checkpoints = {"/state/jobs/a/checkpoints", ".attempt-4-5-6"};
  assignment.load_from = "/state/jobs/a/checkpoints/step-000000050";
  assignment.rank_hosts = {"host-a", "host-b"};
  assignment.weights = {"/state/jobs/a/weights", ".attempt-1-2-3"};
  return assignment;
}

StepReport step_report() {
  StepReport report;
  report.attempt = attempt();
  report.rank = RankIndex(1);
  report.step = 7;
  report.loss = 5.5451774444795623;
  report.wall_seconds = 0.25;
  report.cpu_seconds = 0.125;
  report.wait_seconds = 0.0625;
  report.optimizer_seconds = 0.125;
  report.gradient_norm = 1.5;
  report.stages = {{StageIndex(1), 0.01, 0.02, 0, 0, 4, 3}};
  report.memory = {{"activations", 1 << 20}};
  report.payloads = {{StageIndex(1), LayerIndex(9), "output_gradients", 4, 1, 3, 0.125}};
  report.expert_rows = {{StageIndex(1), LayerIndex(9), 4, {17, 0, 3}, 2}};
  return report;
}

StepTrace step_trace() {
  StepTrace trace;
  trace.attempt = attempt();
  trace.rank = RankIndex(1);
  trace.step = 7;
  trace.clock = "0b7f2c1e-0000";
  trace.monotonic_ns = 123'456'789'012;
  trace.unix_ns = 1'700'000'000'000'000'000;
  trace.works = {{{StageIndex(1), plan::ActionKind::WeightGradient, MicrobatchIndex(3)}, 5, 12, 6}};
  trace.waits = {{StageIndex(1), plan::Flow::Gradient, MicrobatchIndex(3), 1, 5}};
  trace.layers = {{StageIndex(1), plan::LayerType::RecomputedBlock, 70, 210}};
  return trace;
}

template <typename Message, typename Value>
Message changed(const Value& value, const std::function<void(Message&)>& change) {
  Message message = to_proto(value);
  change(message);
  return message;
}

template <typename Value>
std::string refusal(const StatusOr<Value>& result) {
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  return message(result.status());
}

TEST(Wire, an_assignment_survives_the_wire) {
  const StatusOr<Assignment> decoded = from_proto(to_proto(assignment()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->attempt, attempt());
  EXPECT_EQ(decoded->rank, RankIndex(1));
  EXPECT_EQ(decoded->device, 2);
  EXPECT_EQ(decoded->split, assignment().split);
  EXPECT_EQ(decoded->first_step, 50);
  EXPECT_THAT(decoded->rank_hosts, ElementsAre("host-a", "host-b"));
  EXPECT_EQ(decoded->weights.directory, "/state/jobs/a/weights");
  EXPECT_EQ(decoded->weights.marker, ".attempt-1-2-3");
  EXPECT_EQ(decoded->checkpoints.directory, "/state/jobs/a/checkpoints");
  EXPECT_EQ(decoded->checkpoints.marker, ".attempt-4-5-6");
  EXPECT_EQ(decoded->load_from, "/state/jobs/a/checkpoints/step-000000050");
  EXPECT_EQ(decoded->program.instructions, program().instructions);
  ASSERT_THAT(decoded->program.links, SizeIs(1));
  EXPECT_EQ(decoded->program.links[0].digest, 0xfedcba9876543210);
  EXPECT_EQ(decoded->program.buffers[0].activation_slots, 1);
  EXPECT_EQ(decoded->program.buffers[0].backward, plan::BackwardForm::Split);
  EXPECT_EQ(decoded->program.buffers[0].replica, 1);
  EXPECT_EQ(decoded->program.buffers[0].twin, RankIndex(0));
}

TEST(Wire, a_step_report_survives_the_wire_bit_for_bit) {
  // The loss curve of a recovered run is compared bit for bit with what was reported.
  const StatusOr<StepReport> decoded = from_proto(to_proto(step_report()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded->loss, 5.5451774444795623);
  EXPECT_EQ(decoded->stages[0].activation_slots_peak, 3);
  EXPECT_EQ(decoded->memory[0].bytes_peak, 1 << 20);
  ASSERT_THAT(decoded->payloads, SizeIs(1));
  const PayloadSlots& payload = decoded->payloads[0];
  EXPECT_EQ(payload.stage, StageIndex(1));
  EXPECT_EQ(payload.layer, LayerIndex(9));
  EXPECT_EQ(payload.kind, "output_gradients");
  EXPECT_EQ(payload.slots, 4);
  EXPECT_EQ(payload.held, 1);
  EXPECT_EQ(payload.held_peak, 3);
  EXPECT_EQ(payload.oldest_lease_seconds, 0.125);
  ASSERT_THAT(decoded->expert_rows, SizeIs(1));
  const ExpertRows& experts = decoded->expert_rows[0];
  EXPECT_EQ(experts.stage, StageIndex(1));
  EXPECT_EQ(experts.layer, LayerIndex(9));
  EXPECT_EQ(experts.first_expert, 4);
  EXPECT_THAT(experts.rows, ElementsAre(17, 0, 3));
  EXPECT_EQ(experts.dropped, 2);

  StepReport without_loss = step_report();
  without_loss.loss.reset();
  EXPECT_FALSE(from_proto(to_proto(without_loss))->loss.has_value());
  EXPECT_FALSE(decoded->validation_loss.has_value());
  StepReport validated = step_report();
  validated.validation_loss = 0.1 + 0.2;
  EXPECT_EQ(from_proto(to_proto(validated))->validation_loss, 0.1 + 0.2);
}

TEST(Wire, a_part_of_a_checkpoint_is_told_with_its_problem) {
  const CheckpointWritten written{{"a", 2, 7}, RankIndex(3), 50, "the disk is full"};
  const StatusOr<CheckpointWritten> decoded = from_proto(to_proto(written));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->attempt, written.attempt);
  EXPECT_EQ(decoded->rank, RankIndex(3));
  EXPECT_EQ(decoded->step, 50);
  EXPECT_EQ(decoded->problem, "the disk is full");
  EXPECT_THAT(refusal(from_proto(changed<v1::CheckpointWritten>(written, [](auto& m) { m.set_step(0); }))),
              HasSubstr("CheckpointWritten.step: expected 1"));
}

TEST(Wire, an_assignment_may_bring_a_program_for_validation) {
  EXPECT_FALSE(from_proto(to_proto(assignment()))->validation.has_value());
  Assignment validated = assignment();
  validated.validation = validated.program;
  validated.validation->forward_only = true;
  const StatusOr<Assignment> decoded = from_proto(to_proto(validated));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_TRUE(decoded->validation.has_value());
  EXPECT_TRUE(decoded->validation->forward_only);
  EXPECT_EQ(decoded->validation->instructions, program().instructions);
  v1::Assign broken = to_proto(validated);
  broken.mutable_validation()->set_ranks(0);
  EXPECT_THAT(refusal(from_proto(broken)), HasSubstr("Assign.validation"));
}

TEST(Wire, a_loss_that_is_no_number_is_reported_and_not_refused) {
  StepReport diverged = step_report();
  diverged.loss = std::nan("");
  const StatusOr<StepReport> decoded = from_proto(to_proto(diverged));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_TRUE(std::isnan(*decoded->loss));
}

TEST(Wire, a_trace_survives_the_wire) {
  const StatusOr<StepTrace> decoded = from_proto(to_proto(step_trace()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(to_proto(*decoded).SerializeAsString(), to_proto(step_trace()).SerializeAsString());
  EXPECT_EQ(decoded->attempt, attempt());
  EXPECT_EQ(decoded->clock, "0b7f2c1e-0000");
  EXPECT_EQ(decoded->monotonic_ns, 123'456'789'012);
  EXPECT_EQ(decoded->unix_ns, 1'700'000'000'000'000'000);
  ASSERT_THAT(decoded->works, SizeIs(1));
  EXPECT_EQ(decoded->works[0].work, step_trace().works[0].work);
  EXPECT_EQ(decoded->works[0].start_ns, 5);
  EXPECT_EQ(decoded->works[0].end_ns, 12);
  EXPECT_EQ(decoded->works[0].cpu_ns, 6);
  ASSERT_THAT(decoded->waits, SizeIs(1));
  EXPECT_EQ(decoded->waits[0].stage, StageIndex(1));
  EXPECT_EQ(decoded->waits[0].flow, plan::Flow::Gradient);
  EXPECT_EQ(decoded->waits[0].end_ns, 5);
  ASSERT_THAT(decoded->layers, SizeIs(1));
  EXPECT_EQ(decoded->layers[0].stage, StageIndex(1));
  EXPECT_EQ(decoded->layers[0].type, plan::LayerType::RecomputedBlock);
  EXPECT_EQ(decoded->layers[0].forward_ns, 70);
  EXPECT_EQ(decoded->layers[0].backward_ns, 210);
}

TEST(Wire, every_type_of_layer_has_its_own_number) {
  for (int i = 0; i < plan::kLayerTypes; ++i) {
    StepTrace trace = step_trace();
    trace.layers[0].type = static_cast<plan::LayerType>(i);
    EXPECT_EQ(from_proto(to_proto(trace))->layers[0].type, trace.layers[0].type);
  }
  EXPECT_EQ(to_proto(plan::LayerType::Head), v1::LAYER_TYPE_HEAD);
  EXPECT_EQ(to_proto(plan::LayerType::Embedding), v1::LAYER_TYPE_EMBEDDING);
}

TEST(Wire, a_trace_with_times_or_works_that_cannot_be_is_refused) {
  const auto refused = [](const std::function<void(v1::StepTrace&)>& change) {
    return refusal(from_proto(changed<v1::StepTrace>(step_trace(), change)));
  };
  EXPECT_THAT(refused([](auto& m) { m.mutable_works(0)->set_took_ns(-1); }), HasSubstr("works.took_ns"));
  EXPECT_THAT(refused([](auto& m) { m.mutable_works(0)->set_start_ns(INT64_MAX); }),
              HasSubstr("works.start_ns"));
  EXPECT_THAT(refused([](auto& m) { m.mutable_works(0)->set_kind(4); }), HasSubstr("works.kind"));
  EXPECT_THAT(refused([](auto& m) { m.mutable_waits(0)->set_microbatch(-1); }),
              HasSubstr("waits.microbatch"));
  EXPECT_THAT(refused([](auto& m) { m.mutable_layers(0)->clear_type(); }), HasSubstr("layers.type"));
  EXPECT_THAT(refused([](auto& m) { m.mutable_layers(0)->set_backward_ns(-1); }),
              HasSubstr("layers.backward_ns"));
  EXPECT_THAT(refused([](auto& m) { m.set_clock("two words"); }), HasSubstr("clock"));
  EXPECT_THAT(refused([](auto& m) {
                while (m.works_size() <= static_cast<int>(kMostTraced)) *m.add_works() = m.works(0);
              }),
              HasSubstr("works"));
}

TEST(Wire, a_communicator_may_be_named_with_blanks) {
  const CommunicatorKey key{attempt(), "expert-model 1.0", RankIndex(1), "address"};
  EXPECT_EQ(from_proto(to_proto(key))->communicator, "expert-model 1.0");
  EXPECT_FALSE(from_proto(to_proto(CommunicatorKey{attempt(), "a\nb", RankIndex(1), "address"})).ok());
}

TEST(Wire, a_field_out_of_range_is_refused_by_name) {
  EXPECT_EQ(refusal(from_proto(changed<v1::StepReport>(step_report(), [](auto& m) { m.set_rank(-3); }))),
            "StepReport.rank: expected 0 to 65535, found -3");
  EXPECT_EQ(
      refusal(from_proto(changed<v1::StepReport>(step_report(), [](auto& m) { m.set_wall_seconds(-1); }))),
      "StepReport.wall_seconds: expected finite seconds of at least 0, found -1");
  EXPECT_EQ(refusal(from_proto(changed<v1::StepReport>(
                step_report(), [](auto& m) { m.mutable_attempt()->set_attempt(0); }))),
            "StepReport.attempt: AttemptKey.attempt: expected 1 to 9223372036854775807, found 0");
  EXPECT_EQ(refusal(from_proto(changed<v1::StepReport>(step_report(), [](auto& m) { m.clear_attempt(); }))),
            "StepReport.attempt: AttemptKey.job: expected a name of letters, digits and -._:/@[]%, at most "
            "255 bytes, found \"\"");
  EXPECT_THAT(refusal(from_proto(changed<v1::StepReport>(
                  step_report(), [](auto& m) { m.mutable_memory(0)->set_kind("a b"); }))),
              HasSubstr("StepReport.memory.kind: expected a name"));
  EXPECT_THAT(refusal(from_proto(changed<v1::StepReport>(
                  step_report(), [](auto& m) { m.mutable_stages(0)->set_stage(7000000); }))),
              HasSubstr("StepReport.stages.stage: expected 0 to 1048575, found 7000000"));
}

TEST(Wire, memory_whose_sum_would_overflow_is_refused) {
  const auto with_peak = [](int64_t bytes) {
    return from_proto(changed<v1::StepReport>(
        step_report(), [bytes](auto& m) { m.mutable_memory(0)->set_bytes_peak(bytes); }));
  };
  EXPECT_TRUE(with_peak(int64_t{1} << 56).ok());
  EXPECT_EQ(refusal(with_peak((int64_t{1} << 56) + 1)),
            "StepReport.memory.bytes_peak: expected 0 to 72057594037927936, found 72057594037927937");
}

TEST(Wire, rows_of_experts_that_cannot_be_are_refused) {
  // The coordinator adds them up over layers, steps and ranks.
  const auto refused = [](const std::function<void(v1::StepReport&)>& change) {
    return refusal(from_proto(changed<v1::StepReport>(step_report(), change)));
  };
  EXPECT_EQ(refused([](auto& m) { m.mutable_expert_rows(0)->set_rows(1, -1); }),
            "StepReport.expert_rows.rows: expected 0 to 68719476736, found -1");
  EXPECT_EQ(refused([](auto& m) { m.mutable_expert_rows(0)->set_dropped(int64_t{1} << 40); }),
            "StepReport.expert_rows.dropped: expected 0 to 68719476736, found 1099511627776");
  EXPECT_EQ(refused([](auto& m) { m.mutable_expert_rows(0)->set_first_expert(32766); }),
            "StepReport.expert_rows.first_expert: expected 0 to 32765, found 32766");
  EXPECT_EQ(refused([](auto& m) { *m.add_expert_rows() = m.expert_rows(0); }),
            "StepReport.expert_rows: expected each stage and layer once, found stage 1 layer 9 twice");
  EXPECT_EQ(refused([](auto& m) {
              auto& more = *m.add_expert_rows();
              more.set_layer(1);
              for (int i = 0; i < 32768; ++i) more.add_rows(0);
            }),
            "StepReport.expert_rows.rows of all together: expected at most 32768 entries, found 32771");
}

TEST(Wire, payload_slots_that_cannot_be_are_refused) {
  using Change = std::function<void(v1::PayloadSlots&)>;
  const auto refused = [](const Change& change) {
    return refusal(
        from_proto(changed<v1::StepReport>(step_report(), [&](auto& m) { change(*m.mutable_payloads(0)); })));
  };
  // The kind becomes a label of nothing, but bounds what a report may name.
  EXPECT_EQ(refused([](auto& p) { p.set_kind("anything"); }),
            "StepReport.payloads.kind: expected inputs or output_gradients, found \"anything\"");
  EXPECT_EQ(refused([](auto& p) { p.set_held(5); }), "StepReport.payloads.held: expected 0 to 4, found 5");
  EXPECT_EQ(refused([](auto& p) { p.set_held_peak(5); }),
            "StepReport.payloads.held_peak: expected 1 to 4, found 5");
  EXPECT_EQ(refused([](auto& p) { p.set_held_peak(0); }),
            "StepReport.payloads.held_peak: expected 1 to 4, found 0");
  EXPECT_EQ(refused([](auto& p) { p.set_slots(-1); }),
            "StepReport.payloads.slots: expected 0 to 16777216, found -1");
  EXPECT_EQ(refused([](auto& p) { p.set_layer(4096); }),
            "StepReport.payloads.layer: expected 0 to 4095, found 4096");
  EXPECT_THAT(refused([](auto& p) { p.set_oldest_lease_seconds(-1); }),
              HasSubstr("oldest_lease_seconds: expected finite"));
  const auto report_refused = [](const auto& change) {
    return refusal(from_proto(changed<v1::StepReport>(step_report(), change)));
  };
  EXPECT_EQ(
      report_refused([](auto& m) { *m.add_payloads() = m.payloads(0); }),
      "StepReport.payloads: expected each stage, layer and kind once, found stage 1 layer 9 output_gradients twice");
  EXPECT_EQ(report_refused([](auto& m) {
              for (int layer = 10; layer < 10 + 128; ++layer) {
                auto& added = *m.add_payloads() = m.payloads(0);
                added.set_layer(layer);
                added.set_slots(1 << 24);
              }
            }),
            "StepReport.payloads.slots of all together: expected 0 to 2147483647, found 2147483652");
  EXPECT_THAT(refusal(from_proto(changed<v1::StepReport>(step_report(),
                                                         [](auto& m) {
                                                           while (m.payloads_size() <= 8192) m.add_payloads();
                                                         }))),
              HasSubstr("StepReport.payloads: expected at most 8192 entries, found 8193"));
}

TEST(Wire, an_assignment_of_one_of_several_pipelines_names_its_place) {
  // Four ranks: two places of two ranks each.
  Assignment wide = assignment();
  wide.rank_hosts = {"host-a", "host-a", "host-b", "host-b"};
  for (const int rank : {2, 3}) {
    wide.rank = RankIndex(rank);
    const auto decoded = from_proto(to_proto(wide));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->rank, RankIndex(rank));
  }
  wide.rank = RankIndex(1);
  EXPECT_EQ(refusal(from_proto(to_proto(wide))),
            "Assign.program.rank: expected 0 (the place of the rank assigned), found 1");
  wide.rank = RankIndex(4);
  EXPECT_EQ(refusal(from_proto(to_proto(wide))), "Assign.rank: expected 0 to 3, found 4");
}

TEST(Wire, an_assignment_may_start_from_an_imported_checkpoint_of_step_0) {
  const StatusOr<Assignment> decoded =
      from_proto(changed(assignment(), std::function([](v1::Assign& m) { m.set_first_step(0); })));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->load_from, assignment().load_from);
  EXPECT_EQ(decoded->first_step, 0);
}

TEST(Wire, an_assignment_that_contradicts_itself_is_refused) {
  using Change = std::function<void(v1::Assign&)>;
  const auto refused = [](const Change& change) {
    return refusal(from_proto(changed(assignment(), change)));
  };
  EXPECT_EQ(refused([](auto& m) { m.set_rank(0); }),
            "Assign.program.rank: expected 0 (the place of the rank assigned), found 1");
  EXPECT_EQ(refused([](auto& m) { m.mutable_split()->RemoveLast(); }),
            "Assign.split: expected 2 (the program's stages), found 1");
  EXPECT_EQ(refused([](auto& m) { m.mutable_rank_hosts()->RemoveLast(); }),
            "Assign.rank_hosts: expected a multiple of the program's 2 ranks, found 1");
  EXPECT_EQ(refused([](auto& m) { m.set_rank(2); }), "Assign.rank: expected 0 to 1, found 2");
  EXPECT_EQ(refused([](auto& m) { m.set_weights_directory("state"); }),
            "Assign.weights_directory: expected an absolute path, found \"state\"");
  EXPECT_EQ(refused([](auto& m) { m.set_weights_marker("../x"); }),
            "Assign.weights_marker: expected the name of a file, found \"../x\"");
  EXPECT_THAT(refused([](auto& m) { m.set_weights_marker(""); }), HasSubstr("Assign.weights_marker"));
  EXPECT_THAT(refused([](auto& m) { m.set_checkpoints_directory("state"); }),
              HasSubstr("Assign.checkpoints_directory: expected an absolute path"));
  EXPECT_THAT(refused([](auto& m) { m.set_load_from(""); }),
              HasSubstr("Assign.load_from: expected a checkpoint"));
  EXPECT_EQ(refused([](auto& m) { m.mutable_split(1)->set_items(0, "haed"); }),
            "Assign.split[1]: item: expected embedding, head or the number of a block, found \"haed\"");
  EXPECT_THAT(refused([](auto& m) { m.set_spec_yaml(std::string(kLargestSpecBytes + 1, 'x')); }),
              HasSubstr("Assign.spec_yaml: expected at most 1048576 bytes"));
}

TEST(Wire, an_instruction_out_of_its_programs_extent_is_refused_with_its_place) {
  using Change = std::function<void(v1::Instruction&)>;
  const auto refused = [](const Change& change) {
    v1::RankProgram message = to_proto(program());
    change(*message.mutable_instructions(2));
    return refusal(from_proto(message));
  };
  EXPECT_EQ(refused([](auto& m) { m.set_kind(11); }),
            "RankProgram.instructions[2]: kind: expected 0 to 10, found 11");
  EXPECT_THAT(refused([](auto& m) { m.set_stage(2); }), HasSubstr("stage: expected -1 to 1, found 2"));
  EXPECT_THAT(refused([](auto& m) { m.set_action(-1); }), HasSubstr("action: expected 0 to 3, found -1"));
  EXPECT_THAT(refused([](auto& m) { m.set_microbatch(1); }),
              HasSubstr("microbatch: expected -1 to 0, found 1"));
  EXPECT_THAT(refused([](auto& m) { m.set_flow(2); }), HasSubstr("flow: expected 0 to 1, found 2"));
  EXPECT_THAT(refused([](auto& m) { m.set_peer(2); }), HasSubstr("peer: expected -1 to 1, found 2"));
  EXPECT_THAT(refused([](auto& m) { m.set_slot(-2); }), HasSubstr("slot: expected -1 to"));
  EXPECT_THAT(refused([](auto& m) { m.set_update(1); }), HasSubstr("update: expected 0 to 0, found 1"));
  EXPECT_THAT(refused([](auto& m) { m.set_weight_version(2); }),
              HasSubstr("weight_version: expected 0 to 1"));
}

TEST(Wire, a_program_of_absurd_size_is_refused_before_it_is_copied) {
  v1::RankProgram message = to_proto(program());
  message.set_microbatches(65536);
  message.set_updates(65536);
  EXPECT_THAT(refusal(from_proto(message)), HasSubstr("microbatches x updates: expected 1 to 16777216"));
  message = to_proto(program());
  message.set_ranks(1 << 20);
  EXPECT_THAT(refusal(from_proto(message)), HasSubstr("RankProgram.ranks: expected 1 to 65536"));
  message.set_ranks(std::numeric_limits<int32_t>::min());  // one less would overflow
  EXPECT_THAT(refusal(from_proto(message)),
              HasSubstr("RankProgram.ranks: expected 1 to 65536, found -2147483648"));
  message = to_proto(program());
  for (int i = 0; i < 3000; ++i) message.add_buffers();
  EXPECT_THAT(refusal(from_proto(message)), HasSubstr("RankProgram.buffers: expected at most 2048 entries"));
}

Registration registration() {
  return {"ann", "worker-1", "host-a", {{"cpu", 0, "avx512"}}, 41, 1234, "127.0.0.1:9100", "127.0.0.1"};
}

TEST(Wire, a_registration_without_caller_is_anonymous) {
  StatusOr<Registration> decoded = from_proto(to_proto(registration()));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->principal, "ann");
  EXPECT_EQ(decoded->devices[0].fingerprint, "avx512");
  decoded = from_proto(changed<v1::Register>(registration(), [](auto& m) { m.clear_caller(); }));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->principal, "anonymous");
}

TEST(Wire, a_registration_that_could_harm_its_peers_is_refused) {
  using Change = std::function<void(v1::Register&)>;
  const auto refused = [](const Change& change) {
    return refusal(from_proto(changed(registration(), change)));
  };
  // The transport of every peer would try to resolve it, and die.
  EXPECT_EQ(refused([](auto& m) { m.set_data_address("no-such-host"); }),
            "Register.data_address: expected a numeric IPv4 or IPv6 address, found \"no-such-host\"");
  EXPECT_EQ(refused([](auto& m) { m.clear_devices(); }), "Register.devices: expected 1 to 256, found 0");
  EXPECT_THAT(refused([](auto& m) { m.set_incarnation(0); }),
              HasSubstr("Register.incarnation: expected 1 to"));
  EXPECT_THAT(refused([](auto& m) { m.set_worker("a\nb"); }), HasSubstr("Register.worker: expected a name"));
  EXPECT_THAT(refused([](auto& m) { m.set_worker(std::string(256, 'w')); }), HasSubstr("at most 255 bytes"));
  EXPECT_THAT(refused([](auto& m) { m.mutable_caller()->set_principal("a b"); }),
              HasSubstr("Caller.principal"));
}

TEST(Wire, a_digest_of_another_size_is_refused) {
  const RankFinished finished{attempt(), RankIndex(0), {{4, {1, 2, 3}}}};
  const StatusOr<RankFinished> decoded = from_proto(to_proto(finished));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->digests[0].parameter, 4);
  EXPECT_EQ(decoded->digests[0].digest, finished.digests[0].digest);
  EXPECT_EQ(refusal(from_proto(changed<v1::RankFinished>(
                finished, [](auto& m) { m.mutable_digests(0)->set_digest("short"); }))),
            "RankFinished.digests.digest: expected 16 (bytes of XXH3-128), found 5");
}

TEST(Wire, text_that_people_and_programs_write_always_arrives) {
  // A library that prints Latin-1 or a megabyte on one line must not end the session that reports it.
  LogBatch batch{attempt(), RankIndex(0), {"caf\xe9 \xc3\xa9 \xed\xa0\x80", std::string(1 << 20, 'x')}, 2};
  batch.lines.resize(kMostLogLines + 5);
  StatusOr<ExecutorFrame> frame = decode_executor_frame(encode(ExecutorFrame(batch)));
  ASSERT_TRUE(frame.ok()) << frame.status();
  const auto& decoded = std::get<LogBatch>(*frame);
  EXPECT_EQ(decoded.lines[0], "caf? \xc3\xa9 ???");
  EXPECT_THAT(decoded.lines[1], SizeIs(kLongestLogLine));
  EXPECT_THAT(decoded.lines, SizeIs(kMostLogLines));
  EXPECT_EQ(decoded.dropped, 7);

  const RankFailed failed{attempt(), RankIndex(0), -1, std::string(1 << 20, '\xff'), -1, 9};
  frame = decode_executor_frame(encode(ExecutorFrame(failed)));
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_THAT(std::get<RankFailed>(*frame).reason, SizeIs(kLongestReason));
  EXPECT_EQ(std::get<RankFailed>(*frame).signal, 9);
}

TEST(Codec, every_executor_frame_comes_back_as_what_it_was) {
  const CommunicatorKey key{attempt(), "pipeline", RankIndex(1), "address"};
  const std::vector<ExecutorFrame> frames = {
      RankReady{attempt(), RankIndex(1), 77, "avx512 onednn 2.6.3"},
      step_report(),
      step_trace(),
      RankFinished{attempt(), RankIndex(1), {}},
      RankFailed{attempt(), RankIndex(1), 12, "out of memory", 1, 0},
      BrokerPublish{5, key, std::string("\0\xff", 2)},
      BrokerLookUp{6, key, 30000},
      LogBatch{attempt(), RankIndex(1), {"hello"}, 0},
  };
  for (const ExecutorFrame& frame : frames) {
    const std::string bytes = encode(frame);
    const StatusOr<ExecutorFrame> decoded = decode_executor_frame(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->index(), frame.index());
    EXPECT_EQ(encode(*decoded), bytes);
  }
}

TEST(Codec, every_daemon_frame_comes_back_as_what_it_was) {
  const std::vector<DaemonFrame> frames = {
      ExecutorAssignment{assignment(), "127.0.0.1", "worker-1"},
      BrokerReply{6, deadline_exceeded("rank 1 has not published address"), ""},
      BrokerReply{7, ok_status(), std::string("\0\xff", 2)},
  };
  for (const DaemonFrame& frame : frames) {
    const std::string bytes = encode(frame);
    const StatusOr<DaemonFrame> decoded = decode_daemon_frame(bytes);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    EXPECT_EQ(decoded->index(), frame.index());
    EXPECT_EQ(encode(*decoded), bytes);
  }
  EXPECT_EQ(std::get<BrokerReply>(*decode_daemon_frame(encode(frames[1]))).status.code(),
            StatusCode::kDeadlineExceeded);
}

TEST(Codec, bytes_that_are_no_frame_get_a_status) {
  EXPECT_EQ(refusal(decode_executor_frame("")), "ExecutorMessage: expected one message inside, found none");
  EXPECT_EQ(refusal(decode_daemon_frame("")), "DaemonMessage: expected one message inside, found none");
  EXPECT_EQ(refusal(decode_daemon_frame("\xff\xff\xff")),
            "DaemonMessage: expected a protobuf message, found 3 bytes that are none");
  v1::DaemonMessage reply;
  reply.mutable_broker_reply()->set_code(17);
  EXPECT_EQ(refusal(decode_daemon_frame(reply.SerializeAsString())),
            "BrokerReply.code: expected 0 to 16, found 17");
  v1::ExecutorMessage publish;
  *publish.mutable_publish()->mutable_key() =
      to_proto(CommunicatorKey{attempt(), "pipeline", RankIndex(0), "host"});
  publish.mutable_publish()->set_value(std::string(kLargestBrokerValueBytes + 1, 'x'));
  EXPECT_EQ(refusal(decode_executor_frame(publish.SerializeAsString())),
            "BrokerPublish.value: expected at most 65536 bytes, found 65537");
}

TEST(Codec, a_truncated_assignment_gets_a_status_at_every_length) {
  const std::string bytes = encode(DaemonFrame(ExecutorAssignment{assignment(), "127.0.0.1", "worker-1"}));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const StatusOr<DaemonFrame> decoded = decode_daemon_frame(bytes.substr(0, size));
    // A cut between two fields is a message without the later ones: those are then named.
    EXPECT_FALSE(decoded.ok()) << size;
  }
}

}  // namespace
}  // namespace penstock::codec
