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
// Five residuals, the SwiGLU product and its gradient ([6,10] 240 -> 256), gradient of attention, targets.
constexpr int64_t kWorkspace = 5 * 320 + 2 * 256 + 320 + 64;
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
  EXPECT_EQ(predicted->workspace, kWorkspace);
  EXPECT_EQ(predicted->total(),
            4 * weights + kBlockPacked + predicted->activations + predicted->boundary + kWorkspace);
  EXPECT_THAT(
      predicted->by_kind(),
      ElementsAre(Pair("parameters", weights), Pair("packed", kBlockPacked), Pair("gradients", weights),
                  Pair("optimizer", 2 * weights), Pair("activations", predicted->activations),
                  Pair("boundary", predicted->boundary), Pair("workspace", kWorkspace)));
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
                               first.activations + first.routes + first.payload + first.boundary +
                               first.workspace);
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
  // The embedding owns it; its gradient and weight pass through 2 MiB.
  EXPECT_EQ(predicted(tied, 0).total(), predicted(untied, 0).total() + (int64_t{2} << 20));
  EXPECT_EQ(predicted(tied, 1).workspace, predicted(untied, 1).workspace + (int64_t{2} << 20));
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
  EXPECT_EQ(together.workspace, apart.workspace);
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

  const std::vector<MemoryPrediction> all = *predict_job_memory(spec, spec.parallel.split, lowered.ranks);
  ASSERT_EQ(all.size(), 2u);
  JobSpec tight = spec;
  tight.memory_budget_bytes = last.total();
  EXPECT_TRUE(check_memory_budget(tight, all).ok());
  tight.memory_budget_bytes = last.total() - 1;
  const Status refused = check_memory_budget(tight, all);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(refused),
              HasSubstr(fmt::format("line 7: memory_budget: expected at most {} bytes on every rank, "
                                    "found {} on rank 1 (1 too many): parameters {}, packed ",
                                    last.total() - 1, last.total(), last.parameters)));
}

TEST(MemoryBudget, without_a_budget_everything_fits) {
  JobSpec spec = job();
  spec.memory_budget_bytes = 0;
  EXPECT_TRUE(
      check_memory_budget(spec, *predict_job_memory(spec, spec.parallel.split, program().ranks)).ok());
}

// The same with four experts of intermediate 5 in blocks 1 and 3, two of them for each token.
JobSpec with_experts(int expert, int data, const std::string& more = "") {
  const StatusOr<JobSpec> spec = parse_job_spec(fmt::format(
      "name: small\n"
      "model: {{vocab_size: 257, hidden_size: 12, num_hidden_layers: 4, num_attention_heads: 2,\n"
      "        num_key_value_heads: 1, intermediate_size: 10, max_position_embeddings: 3,\n"
      "        moe: {{num_experts: 4, num_experts_per_tok: 2, moe_intermediate_size: 5, layers: [1, 3]}}}}\n"
      "data: {{source: a.txt, sequence_length: 3}}\n"
      "train: {{steps: 1, global_batch_size: 48, microbatch_size: 2}}\n"
      "parallel: {{pipeline: 2, schedule: 1f1b, split: {{layers: [1, 3]}}, expert: {}, data: {}{}}}\n",
      expert, data, more));
  EXPECT_TRUE(spec.ok()) << spec.status();
  return *spec;
}

std::vector<MemoryPrediction> of_all_ranks(const JobSpec& spec) {
  return predict_job_memory(spec, spec.parallel.split, program().ranks).value();
}

TEST(PredictMemory, experts_hold_routes_beside_their_activations_and_payloads_in_slots_of_their_own) {
  // T = 6, E = 4, K = 2, R = 12: probabilities [6,4] 96 -> 128, log-sum-exp 64, choices, weights and rows [6,2] 64 each,
  // sources [12] 64, offsets [5] 64; gate and up [12,10] 480 -> 512; payload [12,12] 576.
  constexpr int64_t kRoutes = 128 + 64 + 3 * 64 + 64 + 64, kGateUp = 512, kDenseGateUp = 512, kPayload = 576;
  const MemoryPrediction last = of_all_ranks(with_experts(1, 1))[1];  // blocks 1 to 3 and the head, one slot
  EXPECT_EQ(last.routes, 2 * kRoutes);
  EXPECT_EQ(last.activations, 3 * kBlockSlot + 2 * (kGateUp - kDenseGateUp) + kHeadSlot);
  EXPECT_EQ(last.payload, 2 * kPayload);
  EXPECT_THAT(last.by_kind(), Contains(Pair("routes", 2 * kRoutes)));
  // Outputs and gradients of rows twice, [12,5] 240 -> 256, row weights and gradients 64 each, [6,2] 64.
  EXPECT_EQ(last.workspace, kWorkspace + 2 * kPayload + 256 + 2 * 64 + 64);
  EXPECT_EQ(
      activation_slot_bytes(with_experts(1, 1), {{ItemKind::Block, LayerIndex(1)}}, BackwardForm::Fused),
      kBlockSlot + kRoutes);
}

TEST(PredictMemory, shared_experts_are_one_network_more_on_every_rank) {
  const auto with_shared = [](int expert) {
    JobSpec spec = with_experts(expert, 1);
    spec.model.moe.num_shared_experts = 3;  // an intermediate of 15, and 10 of the MLP
    return spec;
  };
  // Gate and up [6,30] 720 -> 768, of a split backward [6,15] 360 -> 384 too; in the workspace that twice for [6,10].
  const std::vector<Item> block = {{ItemKind::Block, LayerIndex(1)}};
  for (const BackwardForm form : {BackwardForm::Fused, BackwardForm::Split}) {
    EXPECT_EQ(activation_slot_bytes(with_shared(1), block, form),
              activation_slot_bytes(with_experts(1, 1), block, form) + 768 +
                  (form == BackwardForm::Split ? 384 : 0));
  }
  EXPECT_EQ(action_workspace_bytes(with_shared(1)),
            action_workspace_bytes(with_experts(1, 1)) + 2 * (384 - 256));
  // Gate, up [15,12] and down [12,15], 720 -> 768 each; packed as [30,12] and [12,15] in blocks.
  constexpr int64_t kShared = 3 * 768;
  constexpr int64_t kSharedPacked = 4 * 64 * (16 + 32 + 16 + 16);
  for (const int expert : {1, 2}) {
    const MemoryPrediction without = of_all_ranks(with_experts(expert, 1)).back();  // two blocks with experts
    const MemoryPrediction with = of_all_ranks(with_shared(expert)).back();
    EXPECT_EQ(with.parameters, without.parameters + 2 * kShared);
    EXPECT_EQ(with.gradients, without.gradients + 2 * kShared);
    EXPECT_EQ(with.packed, without.packed + 2 * kSharedPacked);
    EXPECT_EQ(with.activations, without.activations + 2 * 768);
    EXPECT_EQ(with.routes, without.routes);
    EXPECT_EQ(with.payload, without.payload);
  }
}

TEST(PredictMemory, a_rank_holds_its_share_of_the_experts_and_all_dense_parameters) {
  const std::vector<MemoryPrediction> whole = of_all_ranks(with_experts(1, 1));
  const std::vector<MemoryPrediction> shared = of_all_ranks(with_experts(2, 1));
  ASSERT_EQ(shared.size(), 4u);
  // An expert: gate, up [5,12] and down [12,5], 240 -> 256 each; packed gate and up as [10,12] and [12,5] in blocks.
  constexpr int64_t kExpert = 3 * 256;
  constexpr int64_t kExpertPacked = 4 * 64 * (16 + 16 + 16 + 16);
  for (const int rank : {2, 3}) {  // pipeline rank 1, with two blocks of four experts
    EXPECT_EQ(shared[rank].parameters, whole[1].parameters - 2 * 2 * kExpert);
    EXPECT_EQ(shared[rank].gradients, whole[1].gradients - 2 * 2 * kExpert);
    EXPECT_EQ(shared[rank].optimizer, whole[1].optimizer - 2 * 2 * 2 * kExpert);
    EXPECT_EQ(shared[rank].packed, whole[1].packed - 2 * 2 * kExpertPacked);
  }
  EXPECT_EQ(shared[0].parameters, whole[0].parameters);  // its block has no experts
  // A sum of gradients over two ranks passes through 2 MiB.
  EXPECT_EQ(shared[0].workspace - whole[0].workspace -
                (action_workspace_bytes(with_experts(2, 1)) - action_workspace_bytes(with_experts(1, 1))),
            int64_t{2} << 20);
}

TEST(PredictMemory, moments_that_are_shared_out_are_there_once) {
  const auto summed = [](const JobSpec& spec, int64_t MemoryPrediction::*kind) {
    int64_t bytes = 0;
    for (const MemoryPrediction& rank : of_all_ranks(spec)) bytes += rank.*kind;
    return bytes;
  };
  const int64_t once = summed(with_experts(1, 1), &MemoryPrediction::optimizer);
  EXPECT_EQ(summed(with_experts(1, 3), &MemoryPrediction::optimizer), 3 * once);
  EXPECT_EQ(summed(with_experts(1, 3, ", shard_optimizer: true"), &MemoryPrediction::optimizer), once);
  EXPECT_EQ(summed(with_experts(2, 2, ", shard_optimizer: true"), &MemoryPrediction::optimizer), once);
  EXPECT_EQ(summed(with_experts(1, 3, ", shard_optimizer: true"), &MemoryPrediction::parameters),
            3 * summed(with_experts(1, 1), &MemoryPrediction::parameters));
}

TEST(PredictMemory, checkpoints_are_copied_once_over_all_ranks_however_they_stand) {
  for (const auto& [expert, data] : {std::pair{1, 3}, {2, 1}, {2, 2}}) {
    for (const char* sharded : {"", ", shard_optimizer: true"}) {
      JobSpec one = with_experts(1, 1), many = with_experts(expert, data, sharded);
      one.checkpoint.every = many.checkpoint.every = 10;
      int64_t expected = 0, found = 0;
      for (const MemoryPrediction& rank : of_all_ranks(one)) expected += rank.snapshot;
      for (const MemoryPrediction& rank : of_all_ranks(many)) found += rank.snapshot;
      EXPECT_EQ(found, expected) << expert << " " << data << sharded;
    }
  }
}

TEST(PredictMemory, recomputed_blocks_hold_their_input_and_share_one_scratch) {
  JobSpec spec = job();
  spec.recompute = {1, 3};
  const MemoryPrediction none = of_all_ranks(job())[1], some = of_all_ranks(spec)[1];
  EXPECT_EQ(some.activations, none.activations - 2 * (kBlockSlot - 320));
  EXPECT_EQ(some.workspace, none.workspace + kBlockSlot - 320);
  EXPECT_EQ(of_all_ranks(spec)[0].total(), of_all_ranks(job())[0].total());  // block 0 is kept
}

TEST(PredictMemory, between_the_halves_of_backwards_recomputed_values_have_slots_of_their_own) {
  // zb-h1 on the last of two ranks: two microbatches in flight, two between I and W; on the first one.
  JobSpec spec = job();
  spec.recompute = {0, 1, 2, 3};
  const LoweredProgram split = *lower(*generate({"zb-h1", 2, 4, 1}));
  constexpr int64_t kSaved = kBlockSlot - 320 + 2 * 320 + 256;
  const MemoryPrediction first = *predict_memory(spec, spec.parallel.split, split.ranks[0]);
  const MemoryPrediction last = *predict_memory(spec, spec.parallel.split, split.ranks[1]);
  EXPECT_EQ(first.activations, 2 * (kEmbeddingSlot + 320 + 320) + 1 * kSaved);
  EXPECT_EQ(last.activations, 2 * (3 * 320 + kHeadSlot) + 2 * 3 * kSaved);
  EXPECT_EQ(last.workspace, kWorkspace + kSaved);
}

TEST(PredictMemory, validation_has_boundary_slots_of_its_own) {
  const JobSpec spec = job();
  const std::vector<RankProgram> ranks = program().ranks;
  const MemoryPrediction without = *predict_memory(spec, spec.parallel.split, ranks[0]);
  const MemoryPrediction with =
      *predict_memory(spec, spec.parallel.split, ranks[0], {.place = {}, .validation = &ranks[0]});
  EXPECT_EQ(with.boundary, 2 * without.boundary);
  EXPECT_EQ(with.total(), without.total() + without.boundary);
}

TEST(MemoryBudget, the_rank_that_is_named_is_that_of_the_job) {
  JobSpec spec = with_experts(2, 2);
  spec.checkpoint.every = 10;  // pipeline 0 writes the dense parameters
  const std::vector<MemoryPrediction> all = of_all_ranks(spec);
  ASSERT_EQ(all.size(), 8u);
  EXPECT_GT(all[0].total(), all[1].total());
  EXPECT_GT(all[4].total(), all[5].total());
  spec.memory_budget_bytes = 1;
  const int64_t largest = std::max(all[0].total(), all[4].total());
  EXPECT_THAT(message(check_memory_budget(spec, all)),
              HasSubstr(fmt::format("found {} on rank {}", largest, largest == all[0].total() ? 0 : 4)));
}

TEST(MemoryBudget, programs_of_other_ranks_than_the_jobs_are_refused) {
  const JobSpec spec = with_experts(1, 1);
  const std::vector<RankProgram> one = {program().ranks[0]};
  EXPECT_EQ(message(predict_job_memory(spec, spec.parallel.split, one).status()),
            "programs of 1 ranks: expected 2, one for each rank of a pipeline");
}

}  // namespace
}  // namespace penstock::plan
