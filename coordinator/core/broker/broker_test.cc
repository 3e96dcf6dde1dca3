#include "coordinator/core/broker/broker.h"

#include <gmock/gmock.h>

#include "coordinator/core/testing/world.h"

namespace penstock::coordinator {
namespace {

using namespace testing;  // World and its words
using ::testing::HasSubstr;

class BrokerTest : public ::testing::Test {
 protected:
  void SetUp() override { job = world.run(); }

  CommunicatorKey key(int rank, const std::string& item = "address", int asks = -1) {
    return {world.key(job, asks < 0 ? rank : asks), "pipeline", RankIndex(rank), item};
  }
  Status publish(const CommunicatorKey& k, const std::string& value) {
    const auto answers = of<AnswerPublish>(world.tell(Publish{++reply, k, value}));
    EXPECT_EQ(answers.size(), 1u);
    return answers.empty() ? ok_status() : answers[0].status;
  }
  std::vector<AnswerLookUp> look_up(const CommunicatorKey& k, Duration wait = 5s) {
    return of<AnswerLookUp>(world.tell(LookUp{++reply, k, world.now.time + wait}));
  }
  int64_t stale() const { return world.state.refused[static_cast<size_t>(Refusal::Stale)]; }

  World world;
  std::string job;
  ReplyId reply = 1000;
};

TEST_F(BrokerTest, published_value_is_found_by_every_rank) {
  EXPECT_TRUE(publish(key(0), "127.0.0.1:5000").ok());
  const auto answers = look_up(key(0, "address", 1));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(*answers[0].value, "127.0.0.1:5000");
  EXPECT_EQ(look_up(key(0)).size(), 1u);
}

TEST_F(BrokerTest, waiting_look_ups_are_answered_by_the_publication) {
  EXPECT_TRUE(look_up(key(1, "address", 0)).empty());
  EXPECT_TRUE(look_up(key(1, "address", 1)).empty());
  const auto answers = of<AnswerLookUp>(world.tell(Publish{++reply, key(1), "v"}));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(*answers[0].value, "v");
  EXPECT_EQ(world.state.broker.pending(), 0u);
}

TEST_F(BrokerTest, key_is_published_once) {
  EXPECT_TRUE(publish(key(0), "a").ok());
  EXPECT_EQ(publish(key(0), "b").code(), StatusCode::kAlreadyExists);
  EXPECT_TRUE(publish(key(0, "host"), "c").ok());
  EXPECT_EQ(*look_up(key(0))[0].value, "a");
}

TEST_F(BrokerTest, deadline_names_the_missing_rank_and_its_worker) {
  EXPECT_TRUE(look_up(key(1, "address", 0), 3s).empty());
  EXPECT_TRUE(of<AnswerLookUp>(world.tick(2900ms)).empty());
  const auto answers = of<AnswerLookUp>(world.tick(100ms));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].value.status().code(), StatusCode::kDeadlineExceeded);
  EXPECT_THAT(message(answers[0].value.status()), HasSubstr("rank 1 on worker-1 has not published address"));
}

TEST_F(BrokerTest, stale_attempt_or_incarnation_is_refused_and_counted) {
  // A restarted rank must never read the id of the attempt before it.
  CommunicatorKey other = key(0);
  other.attempt.attempt = 2;
  EXPECT_EQ(publish(other, "v").code(), StatusCode::kAborted);
  EXPECT_EQ(look_up(other)[0].value.status().code(), StatusCode::kAborted);
  other = key(0);
  other.attempt.incarnation = 99;
  EXPECT_EQ(publish(other, "v").code(), StatusCode::kAborted);
  EXPECT_EQ(look_up(other)[0].value.status().code(), StatusCode::kAborted);
  EXPECT_EQ(stale(), 4);
  EXPECT_EQ(world.state.broker.attempts(), 0u);
}

TEST_F(BrokerTest, rank_that_does_not_exist_is_refused) {
  CommunicatorKey wrong = key(0);
  wrong.rank = RankIndex(7);
  EXPECT_EQ(publish(wrong, "v").code(), StatusCode::kInvalidArgument);
  wrong.rank = RankIndex(-1);
  EXPECT_EQ(look_up(wrong)[0].value.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(BrokerTest, end_of_the_attempt_ends_its_look_ups_and_drops_its_values) {
  publish(key(0), "v").IgnoreError();
  look_up(key(1, "address", 0), 100s);
  const CommunicatorKey late = key(0);
  const auto answers = of<AnswerLookUp>(world.tell(Cancel{1, job, "bob"}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].value.status().code(), StatusCode::kAborted);
  EXPECT_THAT(message(answers[0].value.status()), HasSubstr("cancelled by bob"));
  EXPECT_EQ(world.state.broker.attempts(), 0u);
  EXPECT_EQ(look_up(late)[0].value.status().code(), StatusCode::kAborted);
}

TEST_F(BrokerTest, abandoned_look_up_is_answered_once) {
  look_up(key(1, "address", 0));
  const auto answers = of<AnswerLookUp>(world.tell(LookUpAbandoned{reply}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].value.status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(world.tell(LookUpAbandoned{reply}).empty());
  EXPECT_TRUE(of<AnswerLookUp>(world.tick(10s)).empty());
}

TEST_F(BrokerTest, values_names_and_pending_look_ups_are_bounded) {
  world.state.options.broker_value_bytes = 10;
  world.state.options.broker_bytes_per_attempt = 200;
  world.state.options.look_ups_pending = 2;
  EXPECT_EQ(publish(key(0), std::string(11, 'x')).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(publish(key(0, std::string(2000, 'i')), "v").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(look_up(key(0, ""))[0].value.status().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(publish(key(0, "one"), "0123456789").ok());
  Status status = ok_status();
  for (int i = 0; i < 10 && status.ok(); ++i) status = publish(key(0, std::to_string(i)), "0123456789");
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_LE(world.state.broker.bytes_of(job, 1), 200u);
  look_up(key(1, "a"));
  look_up(key(1, "b"));
  EXPECT_EQ(look_up(key(1, "c"))[0].value.status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace penstock::coordinator
