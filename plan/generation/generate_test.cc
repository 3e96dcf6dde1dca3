// The front door: what it passes on, what it refuses, and that searches end and repeat.
#include "plan/generation/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/generation/testing/searched.h"

namespace penstock::plan {
namespace {

using testing::checked;
using ::testing::HasSubstr;
using testing::request_for;

std::string refusal_of(const GenerationRequest& request) {
  const StatusOr<GeneratedSchedule> generated = generate(request);
  EXPECT_EQ(generated.status().code(), StatusCode::kInvalidArgument);
  return message(generated.status());
}

GenerationRequest zero_bubble() {
  return request_for("zb-auto", 4, 8, {3, 4, 2}, 4);
}

TEST(Generate, closed_forms_come_as_their_family_makes_them) {
  GenerationRequest request;
  request.schedule.name = "1f1b";
  request.schedule.ranks = 4;
  request.schedule.microbatches = 8;
  const StatusOr<GeneratedSchedule> generated = generate(request);
  ASSERT_TRUE(generated.ok()) << message(generated.status());
  EXPECT_FALSE(generated->search.has_value());
  EXPECT_EQ(generated->program.actions, generate(request.schedule)->actions);
}

TEST(Generate, unknown_names_are_refused_by_the_catalogue) {
  GenerationRequest request;
  request.schedule.name = "zb-autp";
  EXPECT_THAT(refusal_of(request), HasSubstr("zb-autp"));
}

TEST(Generate, without_costs_and_limits_takes_one_tick_each_and_the_memory_of_1f1b) {
  GenerationRequest request;
  request.schedule.name = "zb-auto";
  request.schedule.ranks = 4;
  request.schedule.microbatches = 8;
  const StatusOr<GeneratedSchedule> generated = generate(request);
  ASSERT_TRUE(generated.ok()) << message(generated.status());
  EXPECT_EQ(generated->search->memory_limits, std::vector<int64_t>(4, 4));
  EXPECT_EQ(generated->search->max_stage_span, 27);
  EXPECT_TRUE(generated->search->optimal);
  request.schedule.name = "v-auto";
  EXPECT_EQ(generate(request)->search->memory_limits, std::vector<int64_t>(4, 8));
  EXPECT_EQ(generate(request)->search->max_stage_span, 48);
}

TEST(Generate, every_name_is_listed_once_and_searched_ones_are_told_apart) {
  std::vector<std::string> names = all_schedule_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "zb-auto"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "v-auto"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "1f1b"), 1);
  EXPECT_TRUE(is_searched_schedule("zb-auto"));
  EXPECT_FALSE(is_searched_schedule("1f1b"));
}

TEST(Generate, the_same_seed_and_budget_give_the_same_program) {
  GenerationRequest request = request_for("zb-auto", 4, 16, {3, 4, 2}, 16, {2, -1, -1});
  request.search.evaluations_max = 3'000;
  EXPECT_EQ(generate(request)->program.actions, generate(request)->program.actions);
}

TEST(Generate, a_caller_that_never_wants_to_go_on_gets_a_valid_first_answer) {
  for (const char* name : {"zb-auto", "v-auto"}) {
    GenerationRequest request = request_for(name, 4, 16, {3, 4, 2}, 6);
    request.search.keep_going = [] { return false; };
    EXPECT_EQ(checked(request).evaluations, 0) << name;
  }
}

TEST(Generate, the_search_stops_when_the_caller_says_so) {
  GenerationRequest request = request_for("zb-auto", 4, 16, {3, 4, 2}, 16, {2, -1, -1});
  request.search.evaluations_max = INT64_MAX;
  int asked = 0;
  request.search.keep_going = [&] { return ++asked <= 500; };
  EXPECT_GT(checked(request).evaluations, 100);
  EXPECT_EQ(asked, 501);
}

TEST(Generate, more_evaluations_are_never_worse) {
  Ticks previous = INT64_MAX;
  for (const int64_t evaluations : {0, 10, 100, 1'000, 10'000}) {
    GenerationRequest request = request_for("zb-auto", 4, 16, {3, 4, 2}, 16, {2, -1, -1});
    request.search.evaluations_max = evaluations;
    const Ticks span = checked(request).max_stage_span;
    EXPECT_LE(span, previous) << evaluations;
    previous = span;
  }
}

TEST(Generate, a_limit_below_one_microbatch_is_refused_with_the_smallest_that_works) {
  GenerationRequest request = request_for("v-auto", 4, 8, {1, 1, 1}, 1);
  EXPECT_THAT(refusal_of(request), HasSubstr("the smallest that works is 2"));
  request.memory.limits = {2};
  EXPECT_TRUE(generate(request).ok());
  request = request_for("zb-auto", 4, 8, {1, 1, 1}, 2, {2, 1, -3});
  EXPECT_THAT(refusal_of(request), HasSubstr("the smallest that works is 3"));
}

TEST(Generate, links_have_their_own_delays) {
  GenerationRequest request = zero_bubble();
  request.memory.limits = {8};
  const Ticks without = checked(request).max_stage_span;
  request.costs->links = {
      {RankIndex(1), RankIndex(2), {.latency = 5, .ticks_per_message = 0, .bandwidth = {}}}};
  EXPECT_GT(checked(request).max_stage_span, without);
}

TEST(Generate, shapes_out_of_range_are_refused_by_field) {
  GenerationRequest request = zero_bubble();
  request.schedule.ranks = 0;
  EXPECT_THAT(refusal_of(request), HasSubstr("ranks: expected 1 to"));
  request = zero_bubble();
  request.schedule.microbatches = -1;
  EXPECT_THAT(refusal_of(request), HasSubstr("microbatches: expected 1 to"));
  request = zero_bubble();
  request.schedule.ranks = request.schedule.microbatches = 65'536;
  EXPECT_THAT(refusal_of(request), HasSubstr("actions, at most"));
  request = zero_bubble();
  request.schedule.stages_per_rank = 2;
  EXPECT_THAT(refusal_of(request), HasSubstr("stages_per_rank: schedule 'zb-auto' has 1, found 2"));
  request = zero_bubble();
  request.schedule.updates = 2;
  EXPECT_THAT(refusal_of(request), HasSubstr("updates:"));
}

TEST(Generate, costs_out_of_range_are_refused) {
  GenerationRequest request = zero_bubble();
  request.costs->stages[3].weight_gradient = -1;
  EXPECT_THAT(refusal_of(request), HasSubstr("stage 3"));
  request = zero_bubble();
  request.costs->stages[1].forward = INT64_MAX;
  EXPECT_THAT(refusal_of(request), HasSubstr("stage 1"));
  request = zero_bubble();
  request.costs->stages.resize(3);
  EXPECT_THAT(refusal_of(request), HasSubstr("costs: expected 1 or 4, found 3"));
  request = zero_bubble();
  request.costs->latency = -1;
  EXPECT_THAT(refusal_of(request), HasSubstr("latency -1"));
  request = zero_bubble();
  request.costs->message_bytes = {1};
  EXPECT_THAT(refusal_of(request), HasSubstr("message_bytes: expected 3, found 1"));
  request = zero_bubble();
  request.costs->message_bytes = {INT64_MAX, 1, 1};
  EXPECT_THAT(refusal_of(request), HasSubstr("stage 0"));
}

TEST(Generate, memory_out_of_range_is_refused) {
  GenerationRequest request = zero_bubble();
  for (const MemoryDeltas& deltas : {MemoryDeltas{0, 0, 0}, MemoryDeltas{1, 0, 0}, MemoryDeltas{1, -2, 1},
                                     MemoryDeltas{INT64_MAX, 1, 0}, MemoryDeltas{1, INT64_MAX, INT64_MIN}}) {
    request.memory.deltas = {deltas};
    EXPECT_THAT(refusal_of(request), HasSubstr("memory deltas of stage 0"));
  }
  request = zero_bubble();
  request.memory.limits = {4, 4};
  EXPECT_THAT(refusal_of(request), HasSubstr("memory limits: expected 1 or 4, found 2"));
  request.memory.limits = {4, 4, 4, INT64_MAX};
  EXPECT_THAT(refusal_of(request), HasSubstr("memory limit of rank 3"));
}

TEST(Generate, free_actions_and_single_ranks_work) {
  for (const char* name : {"zb-auto", "v-auto"}) {
    for (const StageCosts& costs :
         {StageCosts{0, 0, 0}, StageCosts{1, 0, 0}, StageCosts{0, 2, 0}, StageCosts{2, 3, 0}}) {
      for (const int ranks : {1, 3}) {
        GenerationRequest request = request_for(name, ranks, 5, costs, 3);
        request.search.evaluations_max = 500;
        checked(request);
      }
    }
  }
}

}  // namespace
}  // namespace penstock::plan
