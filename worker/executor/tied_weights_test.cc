#include "worker/executor/tied_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "worker/transport/in_process.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

const plan::Item kEmbedding{plan::ItemKind::Embedding, {}};
const plan::Item kHead{plan::ItemKind::Head, {}};
const plan::Item kBlock{plan::ItemKind::Block, LayerIndex(0)};

// The matrix is three whole chunks and a bit, so that the slots come round.
plan::ModelSpec model() {
  plan::ModelSpec model;
  model.vocab_size = 3 * 4096 + 7;
  model.hidden_size = 64;
  model.num_hidden_layers = 1;
  model.num_attention_heads = 2;
  model.num_key_value_heads = 1;
  model.intermediate_size = 8;
  model.tie_word_embeddings = true;
  return model;
}

struct Rank {
  explicit Rank(const std::vector<plan::Item>& items)
      : operators(kernels::make_cpu_operators(threads)),
        parameters(ParameterStore::create(model(), items).value()) {}
  kernels::ComputeThreads threads{1};
  std::unique_ptr<kernels::Operators> operators;
  ParameterStore parameters;
  Status status;
};

void fill(kernels::TensorView tensor, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.f32()[i] = normal(random);
}

bool same_bits(kernels::TensorView a, kernels::TensorView b) {
  return std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0;
}

// All ranks at once, each with its own thread and endpoint: one step of the exchange.
void exchange(std::vector<std::unique_ptr<Rank>>& ranks) {
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      const auto endpoint = make_in_process_endpoint(hub);
      const RankIndex rank(static_cast<int64_t>(r));
      const int count = static_cast<int>(ranks.size());
      const auto run = [&]() -> Status {
        PENSTOCK_RETURN_IF_ERROR(endpoint->open({"pipeline", rank, count, "127.0.0.1"}, rendezvous, 30s));
        PENSTOCK_ASSIGN_OR_RETURN(
            const auto tied,
            TiedWeights::create(*endpoint, rank, count, ranks[r]->parameters, *ranks[r]->operators));
        PENSTOCK_RETURN_IF_ERROR(tied->sum_gradients());
        return tied->share_weight();
      };
      ranks[r]->status = run();
      (void)endpoint->drain();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<std::unique_ptr<Rank>> ranks_of(const std::vector<std::vector<plan::Item>>& split) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (const auto& items : split) {
    auto rank = std::make_unique<Rank>(items);
    if (const Parameter* embedding = rank->parameters.tied_embedding()) {
      fill(embedding->gradient, 1);
      fill(embedding->weight, 3);
    }
    if (const Parameter* head = rank->parameters.tied_head()) fill(head->gradient, 2);
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

TEST(TiedWeights, one_rank_and_three_form_the_same_sum_and_hold_the_same_weight) {
  auto one = ranks_of({{kEmbedding, kBlock, kHead}});
  exchange(one);
  ASSERT_TRUE(one[0]->status.ok()) << one[0]->status;
  const Parameter& expected = *one[0]->parameters.tied_embedding();

  // Both ways round: the head below the embedding, as a V placement has it, too.
  for (const auto& split : std::vector<std::vector<std::vector<plan::Item>>>{
           {{kEmbedding}, {kBlock}, {kHead}}, {{kHead}, {kBlock}, {kEmbedding}}}) {
    auto three = ranks_of(split);
    const size_t owner = three[0]->parameters.tied_embedding() != nullptr ? 0 : 2;
    const std::vector<float> before(
        three[owner]->parameters.tied_embedding()->gradient.f32(),
        three[owner]->parameters.tied_embedding()->gradient.f32() + expected.spec.elements());
    exchange(three);
    for (const auto& rank : three) EXPECT_TRUE(rank->status.ok()) << rank->status;
    const Parameter& embedding = *three[owner]->parameters.tied_embedding();
    const Parameter& head = *three[2 - owner]->parameters.tied_head();
    EXPECT_TRUE(same_bits(embedding.gradient, expected.gradient));
    EXPECT_TRUE(same_bits(head.weight, embedding.weight));
    EXPECT_TRUE(same_bits(head.weight, expected.weight));
    for (int64_t i = 0; i < expected.spec.elements(); ++i) {
      ASSERT_EQ(embedding.gradient.f32()[i], before[static_cast<size_t>(i)] + head.gradient.f32()[i]) << i;
    }
  }
}

TEST(TiedWeights, an_end_that_nobody_or_more_than_one_holds_is_an_error_everywhere) {
  for (const auto& split : std::vector<std::vector<std::vector<plan::Item>>>{
           {{kEmbedding}, {kBlock}}, {{kEmbedding}, {kHead}, {kHead}}}) {
    auto ranks = ranks_of(split);
    exchange(ranks);
    for (const auto& rank : ranks) {
      EXPECT_EQ(rank->status.code(), StatusCode::kDataLoss);
      EXPECT_THAT(message(rank->status), HasSubstr("one each expected"));
    }
  }
}

TEST(TiedWeights, a_peer_that_leaves_ends_the_exchange) {
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  auto ranks = ranks_of({{kEmbedding, kBlock}, {kHead}});
  const auto meet = [&](Endpoint& endpoint, int r) -> StatusOr<std::unique_ptr<TiedWeights>> {
    PENSTOCK_RETURN_IF_ERROR(endpoint.open({"pipeline", RankIndex(r), 2, "127.0.0.1"}, rendezvous, 30s));
    return TiedWeights::create(endpoint, RankIndex(r), 2, ranks[static_cast<size_t>(r)]->parameters,
                               *ranks[static_cast<size_t>(r)]->operators);
  };
  std::thread leaver([&] {
    const auto endpoint = make_in_process_endpoint(hub);
    const auto tied = meet(*endpoint, 1);
    endpoint->abort("rank 1 has had enough");
  });
  const auto endpoint = make_in_process_endpoint(hub);
  const auto tied = meet(*endpoint, 0);
  const Status status = tied.ok() ? (*tied)->sum_gradients() : tied.status();
  leaver.join();
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_THAT(message(status), HasSubstr("had enough"));
}

}  // namespace
}  // namespace penstock::worker
