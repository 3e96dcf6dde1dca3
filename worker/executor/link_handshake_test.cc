#include "worker/executor/link_handshake.h"

#include <gtest/gtest.h>

#include <thread>

#include "plan/schedule/families.h"
#include "worker/transport/in_process.h"
#include "worker/transport/testing/late_endpoint.h"

namespace penstock::worker {
namespace {

std::vector<Status> shake_hands(const std::vector<plan::RankProgram>& programs) {
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  std::vector<Status> statuses(programs.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < programs.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const auto endpoint = make_in_process_endpoint(hub);
      const Group group{"pipeline", RankIndex(static_cast<int64_t>(rank)), static_cast<int>(programs.size()),
                        "127.0.0.1"};
      statuses[rank] = endpoint->open(group, rendezvous, 30s);
      if (statuses[rank].ok()) statuses[rank] = compare_link_digests(*endpoint, programs[rank]);
      // Every rank has seen what it sees: a rank that leaves must not be what the others report.
      (void)endpoint->drain();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

std::vector<plan::RankProgram> lowered(const char* schedule, int ranks, int microbatches) {
  return plan::lower(plan::generate({schedule, ranks, microbatches, 1}).value())->ranks;
}

TEST(LinkHandshake, programs_of_one_schedule_agree) {
  for (const Status& status : shake_hands(lowered("1f1b", 4, 8))) EXPECT_TRUE(status.ok()) << status;
}

TEST(LinkHandshake, rank_that_was_told_another_program_is_found_by_both_ends_of_its_edges_only) {
  auto programs = lowered("1f1b", 4, 8);
  programs[3] = lowered("1f1b", 4, 9)[3];
  const std::vector<Status> statuses = shake_hands(programs);
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_NE(message(statuses[2]).find("passes 8 messages"), std::string::npos) << statuses[2];
  EXPECT_NE(message(statuses[2]).find("rank 3's passes 9"), std::string::npos) << statuses[2];
  for (const int end : {2, 3}) {
    EXPECT_EQ(statuses[end].code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(message(statuses[end]).find("link 2>3"), std::string::npos) << statuses[end];
  }
}

TEST(LinkHandshake, same_messages_in_another_order_are_found) {
  auto programs = lowered("gpipe", 2, 4);
  std::vector<plan::Instruction*> posts;
  for (plan::Instruction& instruction : programs[1].instructions) {
    if (instruction.kind == plan::InstructionKind::PostReceive) posts.push_back(&instruction);
  }
  std::swap(posts[0]->work.microbatch, posts[1]->work.microbatch);
  for (const Status& status : shake_hands(programs)) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  }
}

TEST(LinkHandshake, link_that_only_one_end_knows_is_found) {
  auto programs = lowered("1f1b", 3, 4);
  std::erase_if(programs[2].links, [](const plan::Link& link) { return link.source == RankIndex(1); });
  const std::vector<Status> statuses = shake_hands(programs);
  EXPECT_TRUE(statuses[0].ok());
  EXPECT_FALSE(statuses[1].ok());
  EXPECT_FALSE(statuses[2].ok());
}

TEST(LinkHandshake, failed_one_leaves_no_message_under_way_into_its_memory) {
  // The endpoint lives on: a message that comes late would be written into memory that is somebody else's.
  const auto programs = lowered("1f1b", 4, 8);
  for (int posts = 0; posts <= 6; ++posts) {
    LateEndpoint endpoint(posts);
    EXPECT_EQ(compare_link_digests(endpoint, programs[0]).code(), StatusCode::kAborted);
    EXPECT_EQ(endpoint.held(), 0u) << posts << " posts";
    endpoint.deliver_late();
  }
}

}  // namespace
}  // namespace penstock::worker
