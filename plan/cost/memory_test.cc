#include "plan/cost/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// Sizes for which no tensor is a multiple of 64 bytes by chance: T = 6, H = 12, A = 2, K = 1, I = 10.
JobSpec job() {
  const StatusOr<JobSpec> spec = parse_job_spec(
      "name: small\n"
      "model: {vocab_size: 257, hidden_size: 12, num_hidden_layers: 4, num_attention_heads: 2,\n"
      "        num_key_value_heads: 1, intermediate_size: 10, max_position_embeddings: 3}\n"
      "data: {source: a.txt, sequence_length: 3}\n"
      "train: {steps: 1, global_batch_size: 8, microbatch_size: 2}\n"
      "parallel: {pipeline: 2, schedule: 1f1b, split: {layers: [1, 3]}}\n"
      "memory_budget: 123456\n");
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

LoweredProgram program() {
  const StatusOr<ComputeProgram> computed = generate({"1f1b", 2, 4, 1});
  EXPECT_TRUE(computed.ok()) << computed.status();
  StatusOr<LoweredProgram> lowered = lower(*computed);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return *lowered;
}

// By hand, 4 bytes an element and rounded up to 64: tokens 6 -> 64; [6,12] 288 -> 320; [6,24] 576; 12 -> 64;
// [6,20] 480 -> 512.
constexpr int64_t kEmbeddingSlot = 64;
constexpr int64_t kBlockSlot = 320 + 64 + 576 + 320 + 64 + 320 + 64 + 512;
constexpr int64_t kHeadSlot = 320 + 64 + 320;
// Operands in whole blocks: every dimension of a block's weights (12, 24, 12, 20 x 12, 12 x 10) is at most 64, so
// columns are 64 and rows 16 or 32. q, k, v: 16 x 64 + 32 x 64; o: 16 x 64 twice; gate and up: 16 x 64 + 32 x 64;
// down: 16 x 64 twice. The head, [257, 12]: 16 x 320 + 272 x 64.
constexpr int64_t kBlockPacked = 4 * 64 * (16 + 32 + 16 + 16 + 16 + 32 + 16 + 16);
constexpr int64_t kHeadPacked = 4 * (16 * 320 + 272 * 64);

TEST(ActivationSlot, holds_what_each_item_keeps_for_its_backward) {
  const JobSpec spec = job();
  const auto slot = [&](const std::vector<Item>& items) {
    return activation_slot_bytes(spec, items, BackwardForm::Fused);
  };
  EXPECT_EQ(slot({{ItemKind::Embedding, {}}}), kEmbeddingSlot);
  EXPECT_EQ(slot({{ItemKind::Block, LayerIndex(2)}}), kBlockSlot);
  EXPECT_EQ(slot({{ItemKind::Head, {}}}), kHeadSlot);
  EXPECT_EQ(slot(spec.parallel.split[1]), 3 * kBlockSlot + kHeadSlot);
  EXPECT_EQ(boundary_slot_bytes(spec), 320);
}

TEST(ActivationSlot, where_backwards_are_split_it_holds_what_w_reads_of_i) {
  // [6,12] 320; [6,10] 240 -> 256.
  const JobSpec spec = job();
  const auto slot = [&](const std::vector<Item>& items) {
    return activation_slot_bytes(spec, items, BackwardForm::Split);
  };
  EXPECT_EQ(slot({{ItemKind::Embedding, {}}}), kEmbeddingSlot + 320);
  EXPECT_EQ(slot({{ItemKind::Block, LayerIndex(2)}}), kBlockSlot + 2 * 320 + 256);
  EXPECT_EQ(slot({{ItemKind::Head, {}}}), kHeadSlot);

  // zb-h1 splits every backward, 1f1b none: a rank with the same slots holds more.
  const LoweredProgram split = *lower(*generate({"zb-h1", 2, 4, 1}));
  const MemoryPrediction predicted = *predict_memory(spec, spec.parallel.split, split.ranks[0]);
  const int64_t slots = split.ranks[0].buffers[0].activation_slots;
  EXPECT_EQ(predicted.activations, slots * (kEmbeddingSlot + 320 + kBlockSlot + 2 * 320 + 256));
  EXPECT_EQ(program().ranks[0].buffers[0].backward, BackwardForm::Fused);
}

TEST(ActivationSlot, bfloat16_halves_the_activations_and_nothing_else) {
  // [6,12] 144 -> 192; [6,24] 288 -> 320; [6,20] 240 -> 256. Norms and sums stay float32.
  JobSpec spec = job();
  spec.train.dtype = "bfloat16";
  const auto slot = [&](const Item& item) {
    return activation_slot_bytes(spec, {item}, BackwardForm::Fused);
  };
  EXPECT_EQ(slot({ItemKind::Embedding, {}}), kEmbeddingSlot);
  EXPECT_EQ(slot({ItemKind::Block, LayerIndex(2)}), 192 + 64 + 320 + 192 + 64 + 192 + 64 + 256);
  EXPECT_EQ(slot({ItemKind::Head, {}}), 192 + 64 + 192);
  EXPECT_EQ(boundary_slot_bytes(spec), 192);
}

TEST(PredictMemory, bfloat16_packs_weights_in_two_bytes_and_keeps_the_masters) {
  const JobSpec wide = job();
  JobSpec narrow = wide;
  narrow.train.dtype = "bfloat16";
  const RankProgram last = program().ranks[1];
  const MemoryPrediction of_wide = predict_memory(wide, wide.parallel.split, last).value();
  const MemoryPrediction of_narrow = predict_memory(narrow, narrow.parallel.split, last).value();
  EXPECT_EQ(of_wide.packed, 3 * kBlockPacked + kHeadPacked);
  // Rows in blocks of 32: 12 -> 32, 24 -> 32, 20 -> 32, 257 -> 288.
  EXPECT_EQ(of_narrow.packed, 3 * 2 * 64 * 8 * 32 + 2 * (32 * 320 + 288 * 64));
  EXPECT_EQ(of_narrow.parameters, of_wide.parameters);
  EXPECT_EQ(of_narrow.gradients, of_wide.gradients);
  EXPECT_EQ(of_narrow.optimizer, of_wide.optimizer);
}

TEST(PredictMemory, adds_up_a_ranks_stages_slots_and_links) {
  const JobSpec spec = job();
  const RankProgram first = program().ranks[0];
  const StatusOr<MemoryPrediction> predicted = predict_memory(spec, spec.parallel.split, first);
  ASSERT_TRUE(predicted.ok()) << predicted.status();

  // Embedding [257,12] 12336 -> 12352. Block: norms 2 x 64, q and o [12,12] 576 each, k and v [6,12] 288 ->
  // 320 each, gate, up, down [10,12] 480 -> 512 each.
  const int64_t weights = 12352 + 2 * 64 + 2 * 576 + 2 * 320 + 3 * 512;
  EXPECT_EQ(predicted->parameters, weights);
  EXPECT_EQ(predicted->gradients, weights);
  EXPECT_EQ(predicted->optimizer, 2 * weights);
  EXPECT_EQ(predicted->activations,
            2 * (kEmbeddingSlot + kBlockSlot));  // 1f1b, P = 2: two in flight on rank 0

  int64_t slots = 0;
  for (const Link& link : first.links)
    slots += link.source == first.rank ? link.send_slots : link.receive_slots;
  EXPECT_GT(slots, 0);
  EXPECT_EQ(predicted->boundary, 320 * slots);
  EXPECT_EQ(predicted->packed, kBlockPacked);
  EXPECT_EQ(predicted->total(), 4 * weights + kBlockPacked + predicted->activations + predicted->boundary);
  EXPECT_THAT(predicted->by_kind(), ElementsAre(Pair("parameters", weights), Pair("packed", kBlockPacked),
                                                Pair("gradients", weights), Pair("optimizer", 2 * weights),
                                                Pair("activations", predicted->activations),
                                                Pair("boundary", predicted->boundary)));
}

TEST(PredictMemory, experts_inputs_take_a_slot_of_each_block_for_every_microbatch_in_flight) {
  JobSpec spec = job();
  spec.model.moe = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 8, .layers = {0, 1}};
  // 6 tokens, 2 choices: 12 rows of 12, 576 bytes. The activation slot has none of them.
  EXPECT_EQ(payload_slot_bytes(spec, {ItemKind::Block, LayerIndex(0)}), 576);
  EXPECT_EQ(payload_slot_bytes(spec, {ItemKind::Block, LayerIndex(3)}), 0);
  EXPECT_EQ(payload_slot_bytes(spec, {ItemKind::Head, {}}), 0);
  spec.train.dtype = "bfloat16";
  EXPECT_EQ(payload_slot_bytes(spec, {ItemKind::Block, LayerIndex(0)}), 320);  // 288
  spec.train.dtype = "float32";
  // Probabilities [6,4] 96 -> 128, log-sum-exp 64, three of [6,2] 64, sources [12] 64, offsets [5] 64, gate and up
  // [12,16] 768, in place of gate and up [6,20] 480 -> 512.
  EXPECT_EQ(activation_slot_bytes(spec, {{ItemKind::Block, LayerIndex(0)}}, BackwardForm::Fused),
            kBlockSlot - 512 + 128 + 64 + 3 * 64 + 64 + 64 + 768);
  const Split split = {{{ItemKind::Embedding, {}}, {ItemKind::Block, LayerIndex(0)}},
                       {{ItemKind::Block, LayerIndex(1)}, {ItemKind::Head, {}}}};
  const LoweredProgram lowered = *lower(*generate({"1f1b", 2, 4, 1}));
  const MemoryPrediction first = *predict_memory(spec, split, lowered.ranks[0]);
  EXPECT_EQ(first.payload, 2 * 576);  // two in flight on rank 0, one on the last
  EXPECT_EQ(predict_memory(spec, split, lowered.ranks[1])->payload, 576);
  EXPECT_THAT(first.by_kind(), ::testing::Contains(Pair("payload", 2 * 576)));
  EXPECT_EQ(first.total(), first.parameters + first.packed + first.gradients + first.optimizer +
                               first.activations + first.payload + first.boundary);
}

TEST(PredictMemory, a_tied_matrix_is_held_where_it_is_used_and_updated_once) {
  constexpr int64_t kMatrix = 12352;  // [257, 12] in whole cache lines
  const JobSpec untied = job();
  JobSpec tied = untied;
  tied.model.tie_word_embeddings = true;
  const std::vector<RankProgram> ranks = program().ranks;
  const auto predicted = [&](const JobSpec& spec, int rank) {
    return predict_memory(spec, spec.parallel.split, ranks[static_cast<size_t>(rank)]).value();
  };
  EXPECT_EQ(predicted(tied, 0).total(), predicted(untied, 0).total());        // the embedding owns it
  EXPECT_EQ(predicted(tied, 1).parameters, predicted(untied, 1).parameters);  // a copy in lm_head's place
  EXPECT_EQ(predicted(tied, 1).gradients, predicted(untied, 1).gradients);
  EXPECT_EQ(predicted(tied, 1).optimizer, predicted(untied, 1).optimizer - 2 * kMatrix);

  const Split one = {model_items(tied.model)};
  RankProgram whole;
  whole.buffers = {{.stage = StageIndex(0), .activation_slots = 1, .twin = {}}};
  const MemoryPrediction together = predict_memory(tied, one, whole).value();
  const MemoryPrediction apart = predict_memory(untied, one, whole).value();
  EXPECT_EQ(together.parameters, apart.parameters - kMatrix);
  EXPECT_EQ(together.gradients, apart.gradients);  // two accumulators, as with two matrices
}

TEST(PredictMemory, hand_offs_inside_a_rank_need_slots_too) {
  JobSpec spec = job();
  spec.parallel.split = automatic_split(spec.model, 4);
  const StatusOr<ComputeProgram> computed = generate({"interleaved-1f1b", 1, 4, 4});
  ASSERT_TRUE(computed.ok()) << computed.status();
  const StatusOr<LoweredProgram> lowered = lower(*computed);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  const StatusOr<MemoryPrediction> predicted = predict_memory(spec, spec.parallel.split, lowered->ranks[0]);
  ASSERT_TRUE(predicted.ok()) << predicted.status();
  ASSERT_EQ(lowered->ranks[0].links.size(), 1u);
  EXPECT_EQ(predicted->boundary, 320 * lowered->ranks[0].links[0].receive_slots);
}

TEST(PredictMemory, older_weight_versions_are_held_as_often_as_the_schedule_reads_them) {
  // By hand: a norm of 12 elements 64 bytes, the table [257, 12] 12,336 rounded up to 64.
  constexpr int64_t kNorm = 64, kTable = 12352;
  JobSpec spec = job();
  spec.parallel.split = automatic_split(spec.model, 3);  // [embedding, 0], [1, 2], [3, head]
  const auto versions = [&](const char* schedule, int microbatches) {
    const LoweredProgram lowered = *lower(*generate(
        {.name = schedule, .ranks = 3, .microbatches = microbatches, .stages_per_rank = 1, .updates = 6}));
    std::vector<int64_t> of_ranks;
    for (const RankProgram& rank : lowered.ranks)
      of_ranks.push_back(predict_memory(spec, spec.parallel.split, rank)->weight_versions);
    return of_ranks;
  };
  const int64_t first = kBlockPacked + 2 * kNorm, middle = 2 * first;
  const int64_t last = kBlockPacked + kHeadPacked + 3 * kNorm;
  EXPECT_THAT(versions("pipedream", 1), ElementsAre(2 * first, middle, 0));
  EXPECT_THAT(versions("pipedream-2bw", 4), ElementsAre(first + kTable, middle, last));
  EXPECT_THAT(versions("1f1b", 4), ElementsAre(0, 0, 0));
}

TEST(PredictMemory, a_step_that_may_be_taken_back_is_held_once_more_on_every_rank_but_the_last) {
  JobSpec spec = job();
  const LoweredProgram lowered = program();
  const auto predicted = [&](int rank) {
    return *predict_memory(spec, spec.parallel.split, lowered.ranks[rank]);
  };
  EXPECT_EQ(predicted(0).rollback, 0);
  const int64_t without = predicted(0).total();
  spec.parallel.optimizer_step = "post-validated";
  EXPECT_EQ(predicted(0).rollback, 3 * predicted(0).parameters);  // weights and both moments
  EXPECT_EQ(predicted(0).total(), without + predicted(0).rollback);
  EXPECT_EQ(predicted(0).by_kind()[4], std::pair(std::string("rollback"), predicted(0).rollback));
  EXPECT_EQ(predicted(1).rollback, 0);
}

TEST(PredictMemory, a_snapshot_holds_weights_and_both_moments_once_more) {
  JobSpec spec = job();
  const std::vector<RankProgram> ranks = program().ranks;
  const MemoryPrediction without = *predict_memory(spec, spec.parallel.split, ranks[0]);
  spec.checkpoint.every = 10;
  const MemoryPrediction written = *predict_memory(spec, spec.parallel.split, ranks[0]);
  EXPECT_EQ(without.snapshot, 0);
  EXPECT_EQ(written.snapshot, 3 * without.parameters);
  EXPECT_EQ(written.total(), without.total() + written.snapshot);
  EXPECT_THAT(written.by_kind(), Contains(Pair("snapshot", written.snapshot)));
}

TEST(PredictMemory, a_program_with_a_stage_that_the_split_lacks_is_refused) {
  const JobSpec spec = job();
  RankProgram foreign = program().ranks[1];
  foreign.buffers[0].stage = StageIndex(2);
  const StatusOr<MemoryPrediction> predicted = predict_memory(spec, spec.parallel.split, foreign);
  EXPECT_EQ(predicted.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(predicted.status()),
              HasSubstr("program of rank 1: expected stages 0 to 1, found stage 2"));
}

TEST(PredictMemory, absurd_slots_saturate) {
  JobSpec spec = job();
  spec.model.hidden_size = 1 << 17;
  spec.model.intermediate_size = 1 << 19;
  spec.train.microbatch_size = 1 << 20;
  spec.data.sequence_length = 1;
  RankProgram absurd = program().ranks[0];
  absurd.buffers[0].activation_slots = 1 << 24;
  const StatusOr<MemoryPrediction> predicted = predict_memory(spec, spec.parallel.split, absurd);
  ASSERT_TRUE(predicted.ok()) << predicted.status();
  EXPECT_EQ(predicted->total(), std::numeric_limits<int64_t>::max());
}

TEST(MemoryBudget, the_rank_that_does_not_fit_is_named_with_what_it_holds) {
  const JobSpec spec = job();
  const LoweredProgram lowered = program();
  const MemoryPrediction last = *predict_memory(spec, spec.parallel.split, lowered.ranks[1]);

  JobSpec tight = spec;
  tight.memory_budget_bytes = last.total();
  EXPECT_TRUE(check_memory_budget(tight, tight.parallel.split, lowered.ranks).ok());
  tight.memory_budget_bytes = last.total() - 1;
  const Status refused = check_memory_budget(tight, tight.parallel.split, lowered.ranks);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(refused),
              HasSubstr(fmt::format("line 7: memory_budget: expected at most {} bytes on every rank, "
                                    "found {} on rank 1 (1 too many): parameters {}, packed ",
                                    last.total() - 1, last.total(), last.parameters)));
}

TEST(MemoryBudget, without_a_budget_everything_fits) {
  JobSpec spec = job();
  spec.memory_budget_bytes = 0;
  EXPECT_TRUE(check_memory_budget(spec, spec.parallel.split, program().ranks).ok());
}

}  // namespace
}  // namespace penstock::plan
