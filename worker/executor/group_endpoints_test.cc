#include "worker/executor/group_endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "worker/transport/in_process.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

plan::ParallelSpec degrees(int pipeline, int expert, int data) {
  plan::ParallelSpec parallel;
  parallel.pipeline = pipeline;
  parallel.expert = expert;
  parallel.data = data;
  return parallel;
}

// Broker and network of all ranks: a rendezvous and a hub for each communicator.
class Network {
 public:
  Rendezvous& rendezvous(const std::string& communicator) {
    const std::lock_guard lock(mutex_);
    return communicators_[communicator];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, InProcessRendezvous> communicators_;
};

// Every rank on a thread of its own. A group's endpoints meet in one hub, by the order in which they are made.
void on_ranks(const plan::ParallelSpec& parallel,
              const std::function<void(GroupEndpoints&, RankIndex)>& work) {
  const int ranks = parallel.pipeline * parallel.pipelines();
  Network network;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<InProcessHub>> hubs;
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const RankIndex rank(r);
      const plan::RankPlace place = plan::place_of_rank(parallel, rank);
      std::deque<std::string> names = {plan::pipeline_group(parallel, place.pipeline).name};
      if (parallel.pipelines() > 1) names.push_back(plan::data_group(parallel, place.pipeline_rank).name);
      if (parallel.expert > 1)
        names.push_back(plan::expert_model_group(parallel, place.pipeline_rank, place.data_rank).name);
      if (parallel.expert > 1 && parallel.data > 1)
        names.push_back(plan::expert_data_group(parallel, place.pipeline_rank, place.expert_rank).name);
      const auto make_endpoint = [&](plan::P2pMode) {
        const std::lock_guard lock(mutex);
        std::shared_ptr<InProcessHub>& hub = hubs[names.front()];
        names.pop_front();
        if (!hub) hub = make_in_process_hub();
        return make_in_process_endpoint(hub);
      };
      GroupEndpoints groups(parallel, rank, make_endpoint);
      EXPECT_TRUE(names.empty());
      const Status opened = groups.open(
          "127.0.0.1", [&](const std::string& name) -> Rendezvous& { return network.rendezvous(name); },
          SystemClock(), 30s);
      ASSERT_TRUE(opened.ok()) << opened;
      work(groups, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Says a number to the next rank of a group; what the one before said.
StatusOr<double> from_before(const GroupMember& member, double mine) {
  const int next = (static_cast<int>(member.rank.value) + 1) % member.ranks;
  const int before = (static_cast<int>(member.rank.value) + member.ranks - 1) % member.ranks;
  double theirs = -1;
  PENSTOCK_ASSIGN_OR_RETURN(const TransferId received,
                            member.endpoint->post_receive(RankIndex(before), &theirs, sizeof(theirs)));
  PENSTOCK_ASSIGN_OR_RETURN(const TransferId sent,
                            member.endpoint->post_send(RankIndex(next), &mine, sizeof(mine)));
  PENSTOCK_RETURN_IF_ERROR(member.endpoint->wait(sent));
  PENSTOCK_RETURN_IF_ERROR(member.endpoint->wait(received));
  return theirs;
}

TEST(GroupEndpoints, every_rank_meets_its_neighbours_in_each_of_its_groups) {
  on_ranks(degrees(2, 2, 2), [](GroupEndpoints& groups, RankIndex rank) {
    for (const JoinedGroup* joined :
         {&groups.pipeline(), &groups.data(), &groups.expert_model(), &groups.expert_data()}) {
      const GroupMember& member = joined->member;
      ASSERT_NE(member.endpoint, nullptr);
      EXPECT_EQ(joined->in_job(member.rank), rank);
      const int64_t before = (member.rank.value + member.ranks - 1) % member.ranks;
      const auto heard = from_before(member, static_cast<double>(rank.value));
      ASSERT_TRUE(heard.ok()) << heard.status();
      EXPECT_EQ(*heard, static_cast<double>(joined->in_job(RankIndex(before)).value)) << joined->group.name;
    }
    EXPECT_TRUE(groups.drain().ok());
  });
}

TEST(GroupEndpoints, groups_of_one_have_no_endpoint_and_replicated_experts_are_the_data_groups) {
  on_ranks(degrees(1, 1, 3), [](GroupEndpoints& groups, RankIndex) {
    EXPECT_EQ(groups.expert_model().member.endpoint, nullptr);
    EXPECT_EQ(groups.expert_model().member.ranks, 1);
    EXPECT_EQ(&groups.expert_data(), &groups.data());
    EXPECT_NE(groups.data().member.endpoint, nullptr);
    EXPECT_TRUE(groups.drain().ok());
  });
  on_ranks(degrees(2, 1, 1), [](GroupEndpoints& groups, RankIndex) {
    EXPECT_EQ(groups.pipeline().group.name, "pipeline");
    EXPECT_EQ(groups.data().member.endpoint, nullptr);
    EXPECT_TRUE(groups.drain().ok());
  });
}

TEST(GroupEndpoints, a_failure_names_the_group_and_its_ranks_in_the_job) {
  on_ranks(degrees(2, 2, 1), [](GroupEndpoints& groups, RankIndex rank) {
    if (rank == RankIndex(3)) return groups.abort("rank 3 has had enough");
    if (rank != RankIndex(2)) return;
    double number = 0;
    const auto posted = groups.data().member.endpoint->post_receive(RankIndex(1), &number, sizeof(number));
    const Status status = posted.ok() ? groups.data().member.endpoint->wait(*posted) : posted.status();
    EXPECT_EQ(status.code(), StatusCode::kAborted);
    EXPECT_THAT(message(status), HasSubstr("group data 1 (its rank 0 is the job's 2, 1 is 3)"));
    EXPECT_THAT(message(status), HasSubstr("had enough"));
  });
}

}  // namespace
}  // namespace penstock::worker
