#include "worker/transport/all_gather.h"

#include <gtest/gtest.h>

#include <thread>

#include "worker/transport/in_process.h"
#include "worker/transport/testing/late_endpoint.h"

namespace penstock::worker {
namespace {

TEST(AllGather, every_rank_gets_the_same_bits_of_all_in_rank_order_step_after_step) {
  // The gradient norm is summed by every rank for itself: one differing bit and the ranks clip differently.
  const std::vector<int> counts = {3, 1, 0, 2};
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  const auto value = [](int step, int rank, int i) { return 1.0 / (1 + step * 100 + rank * 10 + i); };
  const auto run = [&](int rank) {
    const auto endpoint = make_in_process_endpoint(hub);
    ASSERT_TRUE(endpoint->open({"pipeline", RankIndex(rank), 4, "127.0.0.1"}, rendezvous, 30s).ok());
    AllGather gather(*endpoint, RankIndex(rank), counts);
    for (int step = 0; step < 3; ++step) {
      for (int i = 0; i < counts[rank]; ++i) gather.mine()[i] = value(step, rank, i);
      ASSERT_TRUE(gather.run().ok());
      for (int other = 0; other < 4; ++other) {
        for (int i = 0; i < counts[other]; ++i) {
          EXPECT_EQ(gather.part(RankIndex(other))[i], value(step, other, i));
        }
      }
    }
    EXPECT_TRUE(endpoint->drain().ok());
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(AllGather, counts_that_differ_between_ranks_are_an_error) {
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  const auto run = [&](int rank, std::vector<int> counts) {
    const auto endpoint = make_in_process_endpoint(hub);
    ASSERT_TRUE(endpoint->open({"pipeline", RankIndex(rank), 2, "127.0.0.1"}, rendezvous, 30s).ok());
    AllGather gather(*endpoint, RankIndex(rank), std::move(counts));
    EXPECT_EQ(gather.run().code(), StatusCode::kAborted);
  };
  std::thread other(run, 1, std::vector<int>{2, 3});
  run(0, {2, 2});
  other.join();
}

TEST(AllGather, failed_one_leaves_no_message_under_way_into_its_memory) {
  // The endpoint lives on: a message that comes late would be written into memory that is somebody else's.
  for (int posts = 0; posts <= 6; ++posts) {  // three peers: the last of them fails no post, only the waits
    LateEndpoint endpoint(posts);
    {
      AllGather gather(endpoint, RankIndex(0), {1, 1000, 1000, 1000});
      EXPECT_EQ(gather.run().code(), StatusCode::kAborted);
      EXPECT_EQ(endpoint.held(), 0u) << posts << " posts";
    }
    EXPECT_EQ(endpoint.abort_reason(), "rank 1 was lost");
    endpoint.deliver_late();
  }
}

TEST(PendingTransfers, transfers_that_are_left_are_ended) {
  LateEndpoint endpoint(2);
  {
    std::vector<char> memory(1000);
    PendingTransfers transfers(endpoint, 1);
    EXPECT_TRUE(transfers.post_receive(RankIndex(1), memory.data(), 1000).ok());
    PendingTransfers moved = std::move(transfers);
    EXPECT_EQ(endpoint.held(), 1u);
  }
  EXPECT_EQ(endpoint.held(), 0u);
}

}  // namespace
}  // namespace penstock::worker
