#include "worker/collectives/row_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "kernels/ops/operators.h"
#include "worker/transport/in_process.h"
#include "worker/transport/testing/late_endpoint.h"

namespace penstock::worker {
namespace {

using kernels::DataType;
using kernels::TensorView;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

TensorView view(std::vector<int32_t>& values, std::initializer_list<int64_t> shape) {
  return {values.data(), DataType::Int32, shape};
}
TensorView view(std::vector<float>& values, std::initializer_list<int64_t> shape) {
  return {values.data(), DataType::Float32, shape};
}

// Of 3 ranks with 2 experts each: rows that rank `source` has for every expert.
using Table = std::vector<std::vector<int32_t>>;
const Table kMixed = {{2, 0, 1, 3, 0, 1}, {0, 0, 0, 0, 0, 0}, {1, 1, 0, 2, 4, 0}};
const Table kAllToOne = {{0, 0, 3, 2, 0, 0}, {0, 0, 1, 4, 0, 0}, {0, 0, 0, 6, 0, 0}};
constexpr int kRanks = 3, kLocalExperts = 2, kExperts = 6;
constexpr int64_t kRoom = 24;
constexpr RowLimits kLimits{.for_expert = 6, .for_rank = 8};

// One rank's memory for an exchange of rows of two numbers.
struct Rank {
  Rank(const GroupMember& member, const std::vector<int32_t>& rows_of_experts)
      : member_(member), exchange(member_, kExperts, kLimits) {
    offsets.assign(1, 0);
    for (const int32_t count : rows_of_experts) offsets.push_back(offsets.back() + count);
    counts.assign(kRanks * kLocalExperts, -1);
    route = {view(offsets, {kExperts + 1}), view(counts, {kRanks, kLocalExperts})};
    own.assign(2 * kRoom, -1);
    arrived.assign(2 * kRoom, -1);
    // Row i of expert e of rank r holds (100 r + e, i).
    for (size_t e = 0; e < rows_of_experts.size(); ++e) {
      for (int32_t i = 0; i < rows_of_experts[e]; ++i) {
        const size_t row = static_cast<size_t>(offsets[e] + i);
        own[2 * row] = static_cast<float>(100 * member.rank.value + static_cast<int>(e));
        own[2 * row + 1] = static_cast<float>(i);
      }
    }
  }
  TensorView own_rows() { return view(own, {kRoom, 2}); }
  TensorView arrived_view() { return view(arrived, {kRoom, 2}); }

  GroupMember member_;
  RowExchange exchange;
  std::vector<int32_t> offsets, counts;
  std::vector<float> own, arrived;
  RowRoute route;
};

using Work = std::function<Status(Rank&)>;

// All ranks at once, each with its own thread and endpoint.
std::vector<Status> on_ranks(const Table& table, const Work& work) {
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  std::vector<Status> statuses(table.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < table.size(); ++r) {
    threads.emplace_back([&, r] {
      const auto endpoint = make_in_process_endpoint(hub);
      const RankIndex index(static_cast<int64_t>(r));
      const int ranks = static_cast<int>(table.size());
      statuses[r] = endpoint->open({"expert-model 0.0", index, ranks, "127.0.0.1"}, rendezvous, 30s);
      Rank rank({.endpoint = endpoint.get(), .rank = index, .ranks = ranks}, table[r]);
      if (statuses[r].ok()) statuses[r] = work(rank);
      if (statuses[r].ok()) statuses[r] = endpoint->drain();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

void expect_ok(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST(RowExchange, rows_arrive_source_after_source_and_come_back_where_they_were) {
  for (const Table& table : {kMixed, kAllToOne}) {
    expect_ok(on_ranks(table, [&](Rank& rank) -> Status {
      const int me = rank.member_.rank.value;
      PENSTOCK_RETURN_IF_ERROR(rank.exchange.exchange_counts(rank.route));
      std::vector<float> expected;
      for (int source = 0; source < kRanks; ++source) {
        for (int e = me * kLocalExperts; e < (me + 1) * kLocalExperts; ++e) {
          const int32_t count = table[static_cast<size_t>(source)][static_cast<size_t>(e)];
          EXPECT_EQ(rank.counts[static_cast<size_t>(source * kLocalExperts + e - me * kLocalExperts)], count);
          for (int32_t i = 0; i < count; ++i) {
            expected.push_back(static_cast<float>(100 * source + e));
            expected.push_back(static_cast<float>(i));
          }
        }
      }
      PENSTOCK_RETURN_IF_ERROR(rank.exchange.post_forth(rank.route, rank.own_rows(), rank.arrived_view()));
      PENSTOCK_RETURN_IF_ERROR(rank.exchange.wait());
      EXPECT_EQ(arrived_rows(rank.route.counts), static_cast<int64_t>(expected.size()) / 2);
      expected.resize(rank.arrived.size(), -1);
      EXPECT_THAT(rank.arrived, ElementsAreArray(expected)) << "or something was written behind them";

      const std::vector<float> before = rank.own;
      std::fill(rank.own.begin(), rank.own.end(), -1.0f);
      PENSTOCK_RETURN_IF_ERROR(rank.exchange.post_back(rank.route, rank.arrived_view(), rank.own_rows()));
      PENSTOCK_RETURN_IF_ERROR(rank.exchange.wait());
      EXPECT_EQ(rank.own, before);
      return ok_status();
    }));
  }
}

TEST(RowExchange, work_may_stand_between_posting_and_waiting) {
  // Two exchanges under way at once, of rows and of a number for each.
  expect_ok(on_ranks(kMixed, [&](Rank& rank) -> Status {
    PENSTOCK_RETURN_IF_ERROR(rank.exchange.exchange_counts(rank.route));
    std::vector<float> weights(kRoom), arrived_weights(kRoom, -1);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = rank.own[2 * i];
    RowExchange second(rank.member_, kExperts, kLimits);
    std::vector<float> again(2 * kRoom, -1);
    PENSTOCK_RETURN_IF_ERROR(rank.exchange.post_forth(rank.route, rank.own_rows(), rank.arrived_view()));
    PENSTOCK_RETURN_IF_ERROR(
        rank.exchange.post_forth(rank.route, view(weights, {kRoom}), view(arrived_weights, {kRoom})));
    PENSTOCK_RETURN_IF_ERROR(second.post_forth(rank.route, rank.own_rows(), view(again, {kRoom, 2})));
    PENSTOCK_RETURN_IF_ERROR(second.wait());
    PENSTOCK_RETURN_IF_ERROR(rank.exchange.wait());
    EXPECT_EQ(again, rank.arrived);
    for (int64_t i = 0; i < arrived_rows(rank.route.counts); ++i) {
      EXPECT_EQ(arrived_weights[static_cast<size_t>(i)], rank.arrived[static_cast<size_t>(2 * i)]) << i;
    }
    return ok_status();
  }));
}

TEST(RowExchange, arrivals_are_put_in_the_order_of_expert_source_and_token) {
  std::vector<int32_t> counts = {2, 1, 0, 0, 1, 2};  // of 3 ranks for 2 experts
  std::vector<int32_t> row(8, -7), source(8, -7), offsets(3, -7);
  const kernels::Dispatch dispatch =
      plan_arrivals(view(counts, {3, 2}), {view(row, {8, 1}), view(source, {8}), view(offsets, {3})});
  // Arrived: 0 1 of rank 0 for expert 0, 2 of rank 0 for expert 1, 3 of rank 2 for expert 0, 4 5 for expert 1.
  EXPECT_THAT(offsets, ElementsAre(0, 3, 6));
  EXPECT_THAT(source, ElementsAre(0, 1, 3, 2, 4, 5, -7, -7));
  EXPECT_THAT(row, ElementsAre(0, 1, 3, 2, 4, 5, -7, -7));
  EXPECT_EQ(dispatch.row.size(0), 6);
  EXPECT_EQ(dispatch.row.size(1), 1);

  // The operations of a rank's own rows do the permutation and its inverse.
  kernels::ComputeThreads threads(1);
  const auto operators = kernels::make_cpu_operators(threads);
  std::vector<float> arrived = {10, 11, 12, 13, 14, 15}, ordered(8, -1), back(6, -1);
  operators->gather_rows(view(arrived, {6, 1}), dispatch, view(ordered, {8, 1}));
  EXPECT_THAT(ordered, ElementsAre(10, 11, 13, 12, 14, 15, -1, -1));
  operators->combine_rows(view(ordered, {8, 1}), dispatch, {}, {}, view(back, {6, 1}));
  EXPECT_EQ(back, arrived);
}

TEST(RowExchange, nothing_arrived_is_a_plan_of_no_rows) {
  std::vector<int32_t> counts(6, 0), row(4), source(4), offsets(3, -7);
  const kernels::Dispatch dispatch =
      plan_arrivals(view(counts, {3, 2}), {view(row, {4, 1}), view(source, {4}), view(offsets, {3})});
  EXPECT_THAT(offsets, ElementsAre(0, 0, 0));
  EXPECT_EQ(dispatch.row.size(0), 0);
}

TEST(RowExchange, counts_that_no_rank_can_have_are_told_of_that_rank) {
  // Negative; more than an expert takes; more than all experts of a rank take.
  for (const auto& [false_counts, reason] : std::vector<std::pair<std::vector<int32_t>, const char*>>{
           {{-1, 2}, "-1 rows for expert 0 of rank 0"},
           {{0, 7}, "7 rows for expert 1 of rank 0"},
           {{5, 4}, "4 rows for expert 1 of rank 0, 9 for all up to it; expected 0 to 6, and 8 for all"}}) {
    Table table = kMixed;
    for (size_t e = 0; e < 2; ++e) table[2][e] = std::max(false_counts[e], 0);
    const std::vector<Status> statuses = on_ranks(table, [&](Rank& rank) {
      if (rank.member_.rank.value == 2) rank.offsets[1] = rank.offsets[0] + false_counts[0];
      return rank.exchange.exchange_counts(rank.route);
    });
    EXPECT_EQ(statuses[0].code(), StatusCode::kDataLoss) << statuses[0];
    EXPECT_THAT(message(statuses[0]),
                ::testing::HasSubstr("rank 2 of 3 in the expert-model group says that it has"));
    EXPECT_THAT(message(statuses[0]), ::testing::HasSubstr(reason));
  }
}

TEST(RowExchange, before_the_group_is_connected_a_rank_is_alone) {
  Rank rank({.endpoint = nullptr, .rank = RankIndex(1), .ranks = kRanks}, kMixed[0]);
  rank.route.alone = true;
  ASSERT_TRUE(rank.exchange.exchange_counts(rank.route).ok());
  EXPECT_THAT(rank.counts, ElementsAre(0, 0, 1, 3, 0, 0));
  ASSERT_TRUE(rank.exchange.post_forth(rank.route, rank.own_rows(), rank.arrived_view()).ok());
  ASSERT_TRUE(rank.exchange.wait().ok());
  EXPECT_THAT(std::vector<float>(rank.arrived.begin(), rank.arrived.begin() + 10),
              ElementsAre(102, 0, 103, 0, 103, 1, 103, 2, -1, -1));
}

// Every wait takes a second.
class SlowEndpoint final : public Endpoint {
 public:
  explicit SlowEndpoint(FakeClock& clock) : clock_(clock) {}
  Status open(const Group&, Rendezvous&, Duration) override { return ok_status(); }
  StatusOr<TransferId> post_send(RankIndex, const void*, int64_t) override { return TransferId{0}; }
  StatusOr<TransferId> post_receive(RankIndex, void* data, int64_t bytes) override {
    std::memset(data, 0, static_cast<size_t>(bytes));
    return TransferId{0};
  }
  Status wait(TransferId) override {
    clock_.advance(1s);
    return ok_status();
  }
  void abort(const std::string&) override {}
  Status drain() override { return ok_status(); }

 private:
  FakeClock& clock_;
};

TEST(RowExchange, what_it_waits_is_told_apart_from_what_stands_between) {
  FakeClock clock;
  WaitMeter waits(clock);
  SlowEndpoint endpoint(clock);
  Rank rank({.endpoint = &endpoint, .rank = RankIndex(0), .ranks = kRanks}, kMixed[0]);
  RowExchange exchange(rank.member_, kExperts, kLimits, &waits);
  ASSERT_TRUE(exchange.exchange_counts(rank.route).ok());
  EXPECT_EQ(waits.take(), 4s) << "a send and a receive of two peers";
  ASSERT_TRUE(exchange.post_forth(rank.route, rank.own_rows(), rank.arrived_view()).ok());
  clock.advance(10s);
  ASSERT_TRUE(exchange.wait().ok());
  EXPECT_EQ(waits.take(), 2s) << "rows for two peers, and none from them";
  EXPECT_EQ(waits.take(), 0s);
}

TEST(RowExchange, lost_peer_ends_the_exchange_and_leaves_nothing_under_way) {
  // Posts: two for the counts of each peer, and then rows.
  for (int posts = 0; posts < 8; ++posts) {
    LateEndpoint endpoint(posts);
    Rank rank({.endpoint = &endpoint, .rank = RankIndex(0), .ranks = kRanks}, kMixed[0]);
    rank.counts = {2, 0, 1, 1, 3, 1};  // as they would have come
    Status status = posts < 4 ? rank.exchange.exchange_counts(rank.route)
                              : rank.exchange.post_forth(rank.route, rank.own_rows(), rank.arrived_view());
    if (status.ok()) status = rank.exchange.wait();
    EXPECT_EQ(status.code(), StatusCode::kAborted) << posts;
    EXPECT_EQ(endpoint.held(), 0u) << posts;
    EXPECT_FALSE(endpoint.abort_reason().empty());
  }
}

// The other half of a microbatch has failed, and the endpoint may end before the exchange does.
TEST(RowExchange, given_up_leaves_nothing_under_way) {
  LateEndpoint endpoint(100);
  Rank rank({.endpoint = &endpoint, .rank = RankIndex(0), .ranks = kRanks}, kMixed[0]);
  rank.exchange.give_up(aborted("nothing was posted"));
  rank.counts = {2, 0, 1, 1, 3, 1};
  ASSERT_TRUE(rank.exchange.post_forth(rank.route, rank.own_rows(), rank.arrived_view()).ok());
  EXPECT_GT(endpoint.held(), 0u);
  rank.exchange.give_up(aborted("the other half has lost a peer"));
  EXPECT_EQ(endpoint.held(), 0u);
  EXPECT_EQ(endpoint.abort_reason(), "the other half has lost a peer");
}

}  // namespace
}  // namespace penstock::worker
