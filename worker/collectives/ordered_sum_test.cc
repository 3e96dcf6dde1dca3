#include "worker/collectives/ordered_sum.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "worker/transport/in_process.h"
#include "worker/transport/testing/late_endpoint.h"

namespace penstock::worker {
namespace {

// Not a vector, a few of them, and more rounds than may be under way, the last of them short.
const std::vector<int64_t> kSizes = {1, 15, 1000, 1'100'003};

// Of magnitudes so far apart that another order is another sum.
std::vector<float> random_values(int64_t count, int rank) {
  std::mt19937 random(static_cast<uint32_t>(rank));
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    const uint32_t bits = random();
    value = static_cast<float>(static_cast<int32_t>(bits)) * (bits % 3 == 0 ? 1e-9f : 1e-5f);
  }
  return values;
}

kernels::TensorView view(std::vector<float>& values) {
  return {values.data(), kernels::DataType::Float32, {static_cast<int64_t>(values.size())}};
}

// What every rank must hold: a plain loop over the ranks in order.
std::vector<float> sum_in_order(const std::vector<std::vector<float>>& addends) {
  std::vector<float> sum = addends.front();
  for (size_t rank = 1; rank < addends.size(); ++rank) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + addends[rank][i];
  }
  return sum;
}

// Counts what leaves it.
class CountingEndpoint final : public Endpoint {
 public:
  CountingEndpoint(std::unique_ptr<Endpoint> inner, std::atomic<int64_t>& sent)
      : inner_(std::move(inner)), sent_(sent) {}
  Status open(const Group& group, Rendezvous& rendezvous, Duration timeout) override {
    return inner_->open(group, rendezvous, timeout);
  }
  StatusOr<TransferId> post_send(RankIndex target, const void* data, int64_t bytes) override {
    sent_ += bytes;
    return inner_->post_send(target, data, bytes);
  }
  StatusOr<TransferId> post_receive(RankIndex source, void* data, int64_t bytes) override {
    return inner_->post_receive(source, data, bytes);
  }
  Status wait(TransferId id) override { return inner_->wait(id); }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  Status drain() override { return inner_->drain(); }

 private:
  std::unique_ptr<Endpoint> inner_;
  std::atomic<int64_t>& sent_;
};

using Work = std::function<Status(OrderedSum&, Endpoint&, int rank)>;

// All ranks at once, each with its own thread and endpoint; bytes that were sent in all.
int64_t on_ranks(int ranks, const Work& work, std::vector<Status>& statuses) {
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  std::atomic<int64_t> sent{0};
  statuses.assign(static_cast<size_t>(ranks), ok_status());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      kernels::ComputeThreads compute(1);
      const auto operators = kernels::make_cpu_operators(compute);
      CountingEndpoint endpoint(make_in_process_endpoint(hub), sent);
      ASSERT_TRUE(endpoint.open({"data 0", RankIndex(rank), ranks, "127.0.0.1"}, rendezvous, 30s).ok());
      OrderedSum sum({&endpoint, RankIndex(rank), ranks}, *operators);
      Status& status = statuses[static_cast<size_t>(rank)];
      status = work(sum, endpoint, rank);
      if (status.ok()) status = endpoint.drain();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return sent;
}

TEST(OrderedSum, every_rank_holds_the_sum_in_the_order_of_ranks_bit_for_bit) {
  for (int ranks = 1; ranks <= 4; ++ranks) {
    for (const int64_t size : kSizes) {
      std::vector<std::vector<float>> values;
      for (int rank = 0; rank < ranks; ++rank) values.push_back(random_values(size, rank));
      const std::vector<float> expected = sum_in_order(values);
      std::vector<Status> statuses;
      const int64_t sent = on_ranks(
          ranks,
          [&](OrderedSum& sum, Endpoint&, int rank) {
            return sum.sum(view(values[static_cast<size_t>(rank)]));
          },
          statuses);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto r = static_cast<size_t>(rank);
        ASSERT_TRUE(statuses[r].ok()) << statuses[r];
        EXPECT_EQ(std::memcmp(values[r].data(), expected.data(), expected.size() * sizeof(float)), 0)
            << size << " elements on rank " << rank << " of " << ranks;
      }
      // Every element leaves N - 1 ranks as an addend and one, for N - 1, as a sum.
      EXPECT_EQ(sent, 2 * (ranks - 1) * size * static_cast<int64_t>(sizeof(float)));
    }
  }
}

TEST(OrderedSum, the_order_is_told_from_another) {
  // Or the test above would pass whatever the order is.
  const std::vector<std::vector<float>> values = {random_values(1000, 0), random_values(1000, 1),
                                                  random_values(1000, 2)};
  EXPECT_NE(sum_in_order(values), sum_in_order({values[2], values[1], values[0]}));
}

TEST(OrderedSum, some_ranks_of_a_group_sum_in_the_order_that_they_name) {
  std::vector<std::vector<float>> values;
  for (int rank = 0; rank < 4; ++rank) values.push_back(random_values(1000, rank));
  const std::vector<std::vector<float>> before = values;
  const std::vector<RankIndex> order = {RankIndex(3), RankIndex(0), RankIndex(2)};
  std::vector<Status> statuses;
  on_ranks(
      4,
      [&](OrderedSum& sum, Endpoint&, int rank) {
        return rank == 1 ? ok_status() : sum.sum(view(values[static_cast<size_t>(rank)]), order);
      },
      statuses);
  for (const Status& status : statuses) ASSERT_TRUE(status.ok()) << status;
  const std::vector<float> expected = sum_in_order({before[3], before[0], before[2]});
  for (const size_t rank : {0u, 2u, 3u}) EXPECT_EQ(values[rank], expected) << rank;
  EXPECT_EQ(values[1], before[1]);
}

TEST(OrderedSum, a_rank_that_is_lost_ends_it_on_all_others) {
  // In the middle of a tensor: the first round has been summed, the others never come.
  std::vector<Status> statuses;
  on_ranks(
      3,
      [](OrderedSum& sum, Endpoint& endpoint, int rank) -> Status {
        std::vector<float> values(rank == 1 ? 1000 : 1'100'003, 1.0f);
        if (rank != 1) return sum.sum(view(values));
        endpoint.abort("rank 1 has had enough");
        return aborted("it was this one");
      },
      statuses);
  for (const size_t rank : {0u, 2u}) {
    EXPECT_EQ(statuses[rank].code(), StatusCode::kAborted);
    EXPECT_NE(message(statuses[rank]).find("had enough"), std::string::npos) << statuses[rank];
  }
}

TEST(OrderedSum, nothing_is_under_way_after_a_failure_wherever_it_came) {
  // A late message would be written into memory that has been given to somebody else.
  kernels::ComputeThreads compute(1);
  const auto operators = kernels::make_cpu_operators(compute);
  for (int posts = 0; posts <= 8; ++posts) {
    LateEndpoint endpoint(posts);
    std::vector<float> values(1'100'003);
    {
      OrderedSum sum({&endpoint, RankIndex(1), 3}, *operators);
      const Status status = sum.sum(view(values));
      EXPECT_EQ(status.code(), StatusCode::kAborted) << status;
      EXPECT_EQ(endpoint.held(), 0u) << posts;
    }
    EXPECT_NE(endpoint.abort_reason(), "");
    endpoint.deliver_late();
  }
}

}  // namespace
}  // namespace penstock::worker
