#include "worker/executor/global_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "worker/executor/shared_norms.h"
#include "worker/transport/in_process.h"

namespace penstock::worker {
namespace {

using ::testing::HasSubstr;

// Every rank holds parameters by their places in the model, with a squared norm of each.
using Held = std::vector<SquaredNorm>;

// All ranks at once, each with its own thread and endpoint.
std::vector<StatusOr<double>> norms_of(const std::vector<Held>& ranks, const GlobalNorm::Whole& whole) {
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  std::vector<StatusOr<double>> norms(ranks.size(), 0.0);
  const auto run = [&](size_t r) -> StatusOr<double> {
    const auto endpoint = make_in_process_endpoint(hub);
    const RankIndex rank(static_cast<int64_t>(r));
    const int count = static_cast<int>(ranks.size());
    PENSTOCK_RETURN_IF_ERROR(endpoint->open({"pipeline", rank, count, "127.0.0.1"}, rendezvous, 30s));
    JoinedGroup group{.group = {.name = "pipeline"}, .member = {endpoint.get(), rank, count}};
    for (int each = 0; each < count; ++each) group.group.ranks.emplace_back(each);
    std::vector<int32_t> mine;
    for (const SquaredNorm& held : ranks[r]) mine.push_back(held.parameter);
    const auto norm = GlobalNorm::create(group, mine, whole);
    StatusOr<double> found = norm.ok() ? (*norm)->compute(ranks[r]) : norm.status();
    (void)endpoint->drain();
    return found;
  };
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) threads.emplace_back([&, r] { norms[r] = run(r); });
  for (std::thread& thread : threads) thread.join();
  return norms;
}

TEST(GlobalNorm, every_parameter_counts_once_however_many_ranks_hold_it) {
  for (const StatusOr<double>& norm : norms_of({{{0, 1.0}, {3, 4.0}}, {{1, 2.0}, {2, 9.0}}}, {4, 1})) {
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_EQ(*norm, 4.0);
  }
  const Held outer = {{0, 1.0}, {3, 4.0}}, inner = {{1, 2.0}, {2, 9.0}};
  for (const StatusOr<double>& norm : norms_of({outer, inner, inner, outer}, {4, 2})) {
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_EQ(*norm, 4.0);
  }
}

TEST(GlobalNorm, replicas_whose_gradients_differ_end_the_step_on_every_rank) {
  // A sum over replicas that went wrong would train two models from here on.
  const Held right = {{0, 1.0}, {1, 4.0}};
  const Held wrong = {{0, 1.0}, {1, std::nextafter(4.0, 5.0)}};
  for (const StatusOr<double>& norm : norms_of({right, wrong}, {2, 2})) {
    EXPECT_EQ(norm.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(message(norm.status()),
                HasSubstr("the gradient of parameter 1 has squared norm 4 on rank 0 and 4"));
  }
}

TEST(GlobalNorm, replicas_that_both_have_no_number_have_diverged_and_not_parted) {
  const double nan = std::nan("");
  for (const StatusOr<double>& norm : norms_of({{{0, nan}}, {{0, -nan}}}, {1, 2})) {
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_TRUE(std::isnan(*norm));
  }
}

TEST(GlobalNorm, ranks_that_do_not_hold_the_model_together_are_told) {
  const auto refused = [](const std::vector<Held>& ranks, const GlobalNorm::Whole& whole, const char* why) {
    for (const StatusOr<double>& norm : norms_of(ranks, whole)) {
      EXPECT_EQ(norm.status().code(), StatusCode::kDataLoss);
      EXPECT_THAT(message(norm.status()), HasSubstr(why));
    }
  };
  refused({{{0, 1.0}}, {{1, 1.0}}}, {3, 1}, "own 2 parameters together, the model has 3");
  refused({{{0, 1.0}, {1, 1.0}}, {{1, 1.0}}}, {3, 1}, "owns parameter 1, which another owns");
  refused({{{0, 1.0}, {1, 1.0}}, {{0, 1.0}}, {{0, 1.0}}}, {2, 2}, "owns parameter 0, which another owns");
  refused({{{0, 1.0}}, {{0, 1.0}}}, {2, 2}, "own 1 of the model's 2 parameters");
}

// What ranks of a stage that share out its experts hold, and then the norm of a pipeline of one stage.
std::vector<StatusOr<double>> norms_of_stage(const std::vector<Held>& ranks,
                                             const SharedNorms::Whole& whole) {
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  std::vector<StatusOr<double>> norms(ranks.size(), 0.0);
  const auto run = [&](size_t r) -> StatusOr<double> {
    const auto endpoint = make_in_process_endpoint(hub);
    const RankIndex rank(static_cast<int64_t>(r));
    const int count = static_cast<int>(ranks.size());
    PENSTOCK_RETURN_IF_ERROR(endpoint->open({"data 0", rank, count, "127.0.0.1"}, rendezvous, 30s));
    JoinedGroup group{.group = {.name = "data 0"}, .member = {endpoint.get(), rank, count}};
    for (int each = 0; each < count; ++each) group.group.ranks.emplace_back(10 + each);
    std::vector<int32_t> mine;
    for (const SquaredNorm& held : ranks[r]) mine.push_back(held.parameter);
    PENSTOCK_ASSIGN_OR_RETURN(const auto shared, SharedNorms::create(group, mine, whole));
    const auto all = shared->gather(ranks[r]);
    (void)endpoint->drain();
    if (!all.ok()) return all.status();
    for (size_t i = 0; i < all->size(); ++i) EXPECT_EQ((*all)[i].parameter, whole.parameters[i]);
    return GradientNorm(static_cast<int64_t>(whole.parameters.size())).of(*all);
  };
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r) threads.emplace_back([&, r] { norms[r] = run(r); });
  for (std::thread& thread : threads) thread.join();
  return norms;
}

TEST(SharedNorms, ranks_with_other_experts_have_the_norm_of_all_and_not_the_mean_of_theirs) {
  // Squared norms of 100 and 20: together sqrt(120). The mean of 10 and sqrt(20), 7.236, is nobody's norm.
  for (const StatusOr<double>& norm :
       norms_of_stage({{{0, 100.0}}, {{1, 20.0}}}, {.name = "their stages", .parameters = {0, 1}})) {
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_EQ(*norm, std::sqrt(120.0));
  }
}

TEST(SharedNorms, dense_parameters_and_replicas_of_experts_count_once) {
  // Two rows of two: parameter 0 is everybody's, 1 and 2 are experts.
  const Held first = {{0, 4.0}, {1, 100.0}}, second = {{0, 4.0}, {2, 16.0}};
  const SharedNorms::Whole whole{.name = "their stages", .parameters = {0, 1, 2}, .replicas = 4};
  for (const StatusOr<double>& norm : norms_of_stage({first, second, first, second}, whole)) {
    ASSERT_TRUE(norm.ok()) << norm.status();
    EXPECT_EQ(*norm, std::sqrt(120.0));
  }
}

TEST(SharedNorms, replicas_that_differ_are_named_by_their_ranks_in_the_job) {
  const SharedNorms::Whole whole{.name = "their stages", .parameters = {0}, .replicas = 2};
  for (const StatusOr<double>& norm : norms_of_stage({{{0, 4.0}}, {{0, 5.0}}}, whole)) {
    EXPECT_EQ(norm.status().code(), StatusCode::kDataLoss);
    EXPECT_THAT(message(norm.status()), HasSubstr("squared norm 4 on rank 10 and 5 on rank 11"));
  }
}

}  // namespace
}  // namespace penstock::worker
