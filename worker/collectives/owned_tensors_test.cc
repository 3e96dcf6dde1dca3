#include "worker/collectives/owned_tensors.h"

#include <gtest/gtest.h>

#include <thread>

#include "worker/transport/in_process.h"
#include "worker/transport/testing/late_endpoint.h"

namespace penstock::worker {
namespace {

constexpr int64_t kChunk = OwnedTensors::kChunkBytes / 4;

std::vector<std::vector<float>> tensors_of(int rank) {
  std::vector<std::vector<float>> tensors;
  for (const int64_t size : {int64_t{5}, 3 * kChunk + 7, int64_t{1}, kChunk, int64_t{33}}) {
    std::vector<float> values(static_cast<size_t>(size));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i) + 0.25f * static_cast<float>(rank);
    tensors.push_back(std::move(values));
  }
  return tensors;
}

std::vector<OwnedTensor> owned(std::vector<std::vector<float>>& tensors, const std::vector<int>& owners) {
  std::vector<OwnedTensor> list;
  for (size_t i = 0; i < tensors.size(); ++i) {
    list.push_back(
        {RankIndex(owners[i]),
         {tensors[i].data(), kernels::DataType::Float32, {static_cast<int64_t>(tensors[i].size())}}});
  }
  return list;
}

TEST(OwnedTensors, every_rank_gets_each_owners_bits) {
  // Some owner has nothing, another the longest: rounds in which not all send.
  for (const std::vector<int>& owners :
       std::vector<std::vector<int>>{{0, 1, 2, 0, 1}, {2, 2, 2, 2, 0}, {1, 1, 1, 1, 1}}) {
    const auto hub = make_in_process_hub();
    InProcessRendezvous rendezvous;
    std::vector<std::vector<std::vector<float>>> held = {tensors_of(0), tensors_of(1), tensors_of(2)};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        const auto endpoint = make_in_process_endpoint(hub);
        ASSERT_TRUE(endpoint->open({"data 0", RankIndex(rank), 3, "127.0.0.1"}, rendezvous, 30s).ok());
        OwnedTensors tensors({endpoint.get(), RankIndex(rank), 3},
                             owned(held[static_cast<size_t>(rank)], owners));
        for (int step = 0; step < 2; ++step) {
          const Status status = tensors.share();
          ASSERT_TRUE(status.ok()) << status;
        }
        EXPECT_TRUE(endpoint->drain().ok());
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < owners.size(); ++i) {
      const std::vector<float> expected = tensors_of(owners[i])[i];
      for (const auto& of_rank : held) EXPECT_EQ(of_rank[i], expected) << i;
    }
  }
}

TEST(OwnedTensors, nothing_is_under_way_after_a_failure_wherever_it_came) {
  for (int posts = 0; posts <= 6; ++posts) {
    LateEndpoint endpoint(posts);
    std::vector<std::vector<float>> tensors = tensors_of(0);
    {
      OwnedTensors shared({&endpoint, RankIndex(0), 3}, owned(tensors, {0, 1, 2, 0, 1}));
      EXPECT_EQ(shared.share().code(), StatusCode::kAborted);
      EXPECT_EQ(endpoint.held(), 0u) << posts;
    }
    endpoint.deliver_late();
  }
}

}  // namespace
}  // namespace penstock::worker
