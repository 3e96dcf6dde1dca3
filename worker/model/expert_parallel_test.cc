// A block whose experts are shared out among ranks, against the same block on one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "worker/model/blocks/experts.h"
#include "worker/model/testing/expert_group.h"
#include "worker/model/testing/same_values.h"

namespace penstock::worker {
namespace {

bool is_of_experts(const std::string& name) {
  return name.find(".experts.") != std::string::npos;
}

// Tokens of every rank have the bits of one rank that has all experts, microbatch by microbatch.
void expect_same_tokens(const std::vector<std::unique_ptr<BlockRank>>& ranks, const BlockRank& one,
                        const std::string& dtype) {
  size_t microbatches = 0;
  for (const auto& rank : ranks) {
    for (const auto& [number, bytes] : rank->outputs()) {
      expect_same_values(bytes, one.outputs().at(number), dtype,
                         fmt::format("outputs of microbatch {}", number));
    }
    for (const auto& [number, bytes] : rank->input_gradients()) {
      expect_same_values(bytes, one.input_gradients().at(number), dtype,
                         fmt::format("input gradients of microbatch {}", number));
    }
    microbatches += rank->input_gradients().size();
  }
  EXPECT_EQ(microbatches, one.input_gradients().size());
}

class ExpertParallel : public ::testing::TestWithParam<Variant> {
 protected:
  const plan::JobSpec job_ = job_of(GetParam());
  const int64_t all_ = kMicrobatches * GetParam().ranks;
};

TEST_P(ExpertParallel, tokens_have_the_bits_of_one_rank_with_all_experts) {
  const auto one =
      alone(on_one_rank(job_, kSequences), [&](BlockRank& block) { return in_order(block, all_); });
  for (const Work& work : {Work(all_in_order), Work(with_split_backwards)}) {
    const auto ranks = on_ranks(job_, work);
    expect_same_tokens(ranks, *one, GetParam().dtype);
    for (const auto& rank : ranks) {
      for (const auto& pool : rank->payloads().pools()) EXPECT_EQ(pool->held(), 0) << name_of(pool->kind());
    }
  }
}

TEST_P(ExpertParallel, dense_gradients_are_those_of_the_rank_s_own_microbatches) {
  const auto ranks = on_ranks(job_, all_in_order);
  for (size_t r = 0; r < ranks.size(); ++r) {
    const auto one = alone(on_one_rank(job_, kSequences), [&](BlockRank& block) -> Status {
      for (int64_t m = 0; m < kMicrobatches; ++m) {
        const int64_t number = m * GetParam().ranks + static_cast<int64_t>(r);
        PENSTOCK_RETURN_IF_ERROR(block.forward(number));
        PENSTOCK_RETURN_IF_ERROR(block.backward(number));
      }
      return ok_status();
    });
    const auto expected = one->gradients();
    for (const auto& [name, gradient] : ranks[r]->gradients()) {
      if (is_of_experts(name)) continue;
      expect_same_values(gradient, expected.at(name), GetParam().dtype, fmt::format("rank {} {}", r, name));
    }
  }
}

TEST_P(ExpertParallel, whole_and_split_backwards_leave_the_same_gradients) {
  const auto whole = on_ranks(job_, all_in_order);
  const auto split = on_ranks(job_, with_split_backwards);
  for (size_t r = 0; r < whole.size(); ++r) {
    for (const auto& [name, gradient] : whole[r]->gradients()) {
      EXPECT_TRUE(std::isfinite(std::accumulate(gradient.begin(), gradient.end(), 0.0f))) << name;
      EXPECT_EQ(split[r]->gradients().at(name), gradient) << name;
    }
  }
}

TEST_P(ExpertParallel, loads_count_the_rows_of_all_ranks_tokens) {
  const auto ranks = on_ranks(job_, all_in_order);
  const auto one =
      alone(on_one_rank(job_, kSequences), [&](BlockRank& block) { return in_order(block, all_); });
  const ExpertLoad& expected = *one->stage().expert_loads(StepIndex(0)).front();
  std::vector<int64_t> rows;
  int64_t dropped = 0, sequences = 0;
  for (const auto& rank : ranks) {
    const ExpertLoad& load = *rank->stage().expert_loads(StepIndex(0)).front();
    EXPECT_EQ(load.first_expert, static_cast<int64_t>(rows.size()));
    rows.insert(rows.end(), load.rows.begin(), load.rows.end());
    dropped += load.dropped;
    sequences += load.sequences;
  }
  EXPECT_EQ(rows, expected.rows);
  EXPECT_EQ(dropped, expected.dropped);
  EXPECT_EQ(dropped > 0, GetParam().capacity_factor > 0);
  EXPECT_EQ(sequences, job_.train.global_batch_size);
}

TEST_P(ExpertParallel, ranks_whose_experts_get_no_row_or_every_row_have_the_bits_of_one) {
  // A router of zeros: every token goes to the first experts, which are all on the first rank or two.
  const Prepare zeros = [](ParameterStore& parameters) {
    const kernels::TensorView router = parameters.at("model.layers.0.mlp.gate.weight").weight;
    std::fill(router.f32(), router.f32() + router.elements(), 0.0f);
  };
  const auto one = alone(
      on_one_rank(job_, kSequences), [&](BlockRank& block) { return in_order(block, all_); }, zeros);
  const auto ranks = on_ranks(job_, all_in_order, zeros);
  expect_same_tokens(ranks, *one, GetParam().dtype);
  for (const auto& [name, gradient] : ranks.back()->gradients()) {
    if (!is_of_experts(name)) continue;
    EXPECT_THAT(gradient, ::testing::Each(0.0f)) << name;
  }
}

TEST_P(ExpertParallel, forwards_whose_backwards_will_not_come_leave_no_payload_behind) {
  const auto ranks = on_ranks(job_, [](BlockRank& block) -> Status {
    PENSTOCK_RETURN_IF_ERROR(block.forward(0));
    PENSTOCK_RETURN_IF_ERROR(block.forward(1));
    block.stage().forget_forwards();
    block.begin_step();
    return all_in_order(block);
  });
  const auto right = on_ranks(job_, all_in_order);
  for (size_t r = 0; r < ranks.size(); ++r) EXPECT_EQ(ranks[r]->gradients(), right[r]->gradients());
}

INSTANTIATE_TEST_SUITE_P(
    Variants, ExpertParallel,
    ::testing::Values(
        Variant{.ranks = 2}, Variant{.ranks = 4}, Variant{.ranks = 8, .dtype = "bfloat16"},
        Variant{.ranks = 2, .capacity_factor = 0.8}, Variant{.ranks = 4, .capacity_factor = 0.8},
        Variant{.ranks = 2, .recomputed = true}, Variant{.ranks = 2, .dtype = "bfloat16", .halves = true},
        Variant{.ranks = 4, .capacity_factor = 0.8, .halves = true},
        Variant{.ranks = 2, .halves = true, .recomputed = true}, Variant{.ranks = 2, .shared = 3},
        Variant{.ranks = 4, .dtype = "bfloat16", .halves = true, .recomputed = true, .shared = 1}),
    [](const auto& tested) {
      const Variant& v = tested.param;
      return fmt::format("{}_ranks_{}{}{}{}{}", v.ranks, v.dtype, v.capacity_factor > 0 ? "_capacity" : "",
                         v.halves ? "_halves" : "", v.recomputed ? "_recomputed" : "",
                         v.shared > 0 ? "_shared" : "");
    });

TEST(ExpertLoads, of_a_step_that_has_not_ended_are_not_those_of_the_next) {
  // Without a flush forwards of the next step come before the last backward of this one.
  const plan::JobSpec job = on_one_rank(job_of({}), kSequences);
  const auto block = alone(job, [](BlockRank& rank) -> Status {
    PENSTOCK_RETURN_IF_ERROR(rank.forward(0));
    PENSTOCK_RETURN_IF_ERROR(rank.forward(1));
    rank.go_on_to(StepIndex(1));
    PENSTOCK_RETURN_IF_ERROR(rank.forward(2));
    rank.stage().begin_step(StepIndex(1));
    return ok_status();
  });
  const int64_t tokens = job.tokens_per_microbatch();
  EXPECT_EQ(block->stage().expert_loads(StepIndex(0)).front()->tokens, 2 * tokens);
  EXPECT_EQ(block->stage().expert_loads(StepIndex(1)).front()->tokens, tokens);
  EXPECT_EQ(block->stage().expert_loads(StepIndex(2)).front()->tokens, 0);
}

// The documented order, by a rank with all experts that sees the tokens of all ranks as one microbatch: rows of an
// expert then stand by token, and so by source.
void expect_experts_gradients(const std::vector<std::unique_ptr<BlockRank>>& ranks, const BlockRank& one) {
  const auto expected = one.gradients();
  size_t compared = 0;
  for (const auto& rank : ranks) {
    for (const auto& [name, gradient] : rank->gradients()) {
      if (!is_of_experts(name)) continue;
      ++compared;
      EXPECT_EQ(gradient, expected.at(name)) << name;
    }
  }
  EXPECT_EQ(compared, static_cast<size_t>(3 * kExperts)) << "every expert is on one rank";
}

TEST(ExpertGradients, are_sums_over_expert_source_and_token) {
  for (const Variant& variant :
       {Variant{.ranks = 2}, Variant{.ranks = 4}, Variant{.ranks = 4, .dtype = "bfloat16"},
        Variant{.ranks = 2, .recomputed = true}}) {
    const plan::JobSpec job = job_of(variant);
    const auto one = alone(on_one_rank(job, kSequences * variant.ranks), all_in_order);
    expect_experts_gradients(on_ranks(job, all_in_order), *one);
  }
}

TEST(ExpertGradients, of_halves_are_that_of_the_first_and_then_that_of_the_second) {
  // A rank with all experts sees the first halves of all ranks as one microbatch, and the second ones as the next.
  for (const int ranks : {2, 4}) {
    const plan::JobSpec job = job_of({.ranks = ranks, .halves = true});
    plan::JobSpec whole = on_one_rank(job, ranks);
    whole.two_batch_overlap = false;
    ASSERT_EQ(whole.microbatches(), 2 * kMicrobatches);
    const auto one = alone(whole, [&](BlockRank& block) {
      block.take_sequences([&](int64_t microbatch, int64_t rank) {
        const int64_t half = microbatch % 2;
        return 2 * (microbatch / 2 * ranks + rank) + half;
      });
      return in_order(block, 2 * kMicrobatches);
    });
    expect_experts_gradients(on_ranks(job, all_in_order), *one);
  }
}

}  // namespace
}  // namespace penstock::worker
