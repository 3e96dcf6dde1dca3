#include "worker/executor/chunked_exchange.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <thread>

#include "worker/transport/in_process.h"

namespace penstock::worker {
namespace {

constexpr int64_t kChunk = ChunkedExchange::kChunkBytes / 4;
// Less than a chunk, chunks to the byte, one slot more than there are, and a bit.
const std::vector<int64_t> kSizes = {1, 1000, kChunk, 2 * kChunk, 3 * kChunk, 3 * kChunk + 7};

std::vector<float> random_values(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

kernels::TensorView view(std::vector<float>& values) {
  return {values.data(), kernels::DataType::Float32, {static_cast<int64_t>(values.size())}};
}

using Half = std::function<Status(ChunkedExchange&, RankIndex peer)>;

// Both ranks at once, each with its own thread and endpoint.
void exchange(const Half& of_first, const Half& of_second) {
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  const auto run = [&](int rank, const Half& half) {
    kernels::ComputeThreads compute(1);
    const auto operators = kernels::make_cpu_operators(compute);
    const auto endpoint = make_in_process_endpoint(hub);
    ASSERT_TRUE(endpoint->open({"pipeline", RankIndex(rank), 2, "127.0.0.1"}, rendezvous, 30s).ok());
    ChunkedExchange exchange(*endpoint, *operators);
    const Status status = half(exchange, RankIndex(1 - rank));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(endpoint->drain().ok());
  };
  std::thread second([&] { run(1, of_second); });
  run(0, of_first);
  second.join();
}

TEST(ChunkedExchange, what_is_sent_arrives_bit_for_bit_or_is_added) {
  for (const int64_t size : kSizes) {
    std::vector<float> source = random_values(size, 1), target(source.size()), sum = random_values(size, 2);
    std::vector<float> expected = sum;
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += source[i];
    exchange(
        [&](ChunkedExchange& mine, RankIndex peer) -> Status {
          PENSTOCK_RETURN_IF_ERROR(mine.send(peer, view(source)));
          return mine.send(peer, view(source));
        },
        [&](ChunkedExchange& mine, RankIndex peer) -> Status {
          PENSTOCK_RETURN_IF_ERROR(mine.receive(peer, view(target)));
          return mine.add_received(peer, view(sum));
        });
    EXPECT_EQ(target, source) << size;
    EXPECT_EQ(sum, expected) << size;
  }
}

TEST(ChunkedExchange, a_peer_that_leaves_ends_the_sum) {
  // In the middle of a tensor: its first chunks have been added, the rest never comes.
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  std::thread leaver([&] {
    const auto endpoint = make_in_process_endpoint(hub);
    ASSERT_TRUE(endpoint->open({"pipeline", RankIndex(1), 2, "127.0.0.1"}, rendezvous, 30s).ok());
    std::vector<float> chunk(kChunk);
    const TransferId sent =
        endpoint->post_send(RankIndex(0), chunk.data(), ChunkedExchange::kChunkBytes).value();
    EXPECT_TRUE(endpoint->wait(sent).ok());
    endpoint->abort("rank 1 has had enough");
  });
  kernels::ComputeThreads compute(1);
  const auto operators = kernels::make_cpu_operators(compute);
  const auto endpoint = make_in_process_endpoint(hub);
  ASSERT_TRUE(endpoint->open({"pipeline", RankIndex(0), 2, "127.0.0.1"}, rendezvous, 30s).ok());
  std::vector<float> values(5 * kChunk);
  ChunkedExchange exchange(*endpoint, *operators);
  const Status status = exchange.add_received(RankIndex(1), view(values));
  leaver.join();
  EXPECT_EQ(status.code(), StatusCode::kAborted);
  EXPECT_NE(message(status).find("had enough"), std::string::npos) << status;
}

}  // namespace
}  // namespace penstock::worker
