#include "plan/schedule/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/text.h"

namespace penstock::plan {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Le;

std::string line(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) text += (text.empty() ? "" : " ") + to_string(action);
  return text;
}

std::vector<std::string> lines(const ScheduleRequest& request) {
  const StatusOr<ComputeProgram> program = generate(request);
  if (!program.ok()) return {message(program.status())};
  std::vector<std::string> text;
  for (const auto& actions : program->actions) text.push_back(line(actions));
  return text;
}

std::vector<std::string> lines_of(const char* text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string of_rank; std::getline(stream, of_rank);) result.push_back(of_rank);
  return result;
}

struct Order {
  const char* schedule;
  int ranks;
  int microbatches;
  int stages_per_rank;
  const char* text;
};

constexpr Order kPublishedOrders[] = {
#include "plan/schedule/families/published_orders.inc"
};

constexpr Order kTorchOrders[] = {
#include "plan/schedule/families/torch_orders.inc"
};

void expect_order(const Order& order) {
  SCOPED_TRACE(fmt::format("{} P={} m={}", order.schedule, order.ranks, order.microbatches));
  const std::vector<std::string> expected = lines_of(order.text);
  EXPECT_EQ(lines({order.schedule, order.ranks, order.microbatches, order.stages_per_rank}), expected);
}

// --- orders

TEST(Families, published_orders_are_reproduced) {
  for (const Order& order : kPublishedOrders) expect_order(order);
}

TEST(Families, orders_of_pytorch_are_reproduced) {
  for (const Order& order : kTorchOrders) expect_order(order);
}

TEST(Families, naive_runs_one_microbatch_at_a_time) {
  EXPECT_THAT(lines({"naive", 2, 2, 1}), ElementsAre("0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"));
}

TEST(Families, gpipe_and_looped_bfs_run_backwards_in_microbatch_order) {
  // Last in, first out would accumulate gradients in another order, and losses would differ in their last
  // bits.
  EXPECT_THAT(lines({"gpipe", 2, 3, 1}), ElementsAre("0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1F2 1B0 1B1 1B2"));
  EXPECT_THAT(lines({"looped-bfs", 2, 2, 2}),
              ElementsAre("0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1", "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1"));
}

TEST(Families, interleaved_shares_microbatches_out_where_ranks_do_not_divide_them) {
  // m=9 on 4 ranks: groups of 5 and 4, so that no group is shorter than the pipeline.
  const std::vector<std::string> text = lines({"interleaved-1f1b", 4, 9, 2});
  EXPECT_THAT(text[3], testing::StartsWith("3F0 3F1 3F2 3F3 3F4 7F0 7B0 7F1 7B1"));
  EXPECT_THAT(text[3], HasSubstr("7F4 7B4 3F5 3B0 3F6 3B1"));
}

TEST(Families, dualpipe_runs_the_lists_of_dualpipe_v_in_two_directions) {
  // Published as one equality: DualPipe on 2P ranks and DualPipeV on P. Rank 0 takes lo's part with the first
  // direction, its mirror with the second, whose microbatches are numbered on.
  const ComputeProgram one_way = *generate({"dualpipe-v", 3, 8});
  const ComputeProgram two_way = *generate({"dualpipe", 6, 16});
  const auto moved = [](const Work& work, bool is_mirror) {
    const bool is_second = (work.stage.value < 3) == is_mirror;
    return Work{work.stage, work.kind, MicrobatchIndex(work.microbatch.value + (is_second ? 8 : 0))};
  };
  for (int rank = 0; rank < 6; ++rank) {
    std::vector<Action> expected = one_way.actions[std::min(rank, 5 - rank)];
    for (Action& action : expected) {
      action.work = moved(action.work, rank >= 3);
      if (action.overlapped) action.overlapped = moved(*action.overlapped, rank >= 3);
    }
    EXPECT_EQ(line(two_way.actions[rank]), line(expected));
  }
}

TEST(Families, chimera_starts_and_ends_on_both_ends) {
  EXPECT_THAT(lines({"chimera", 2, 2}), ElementsAre("0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1"));
  EXPECT_THAT(lines({"chimera", 4, 4})[0], HasSubstr("0F0 0F1 3F2 3B2 3F3 3B3 0B0 0B1"));
}

// --- several updates

TEST(Families, synchronous_schedule_of_two_updates_is_two_of_one) {
  for (const std::string& name : schedule_names()) {
    const ComputeProgram one = *generate({.name = name, .ranks = 4, .microbatches = 3});
    const ComputeProgram two = *generate({.name = name, .ranks = 4, .microbatches = 3, .updates = 2});
    EXPECT_EQ(two.updates, 2);
    EXPECT_EQ(two.total_microbatches(), 6);
    if (two.version_rule != WeightVersionRule::Synchronous) continue;
    for (int rank = 0; rank < 4; ++rank) {
      const std::string first = line(one.actions[rank]);
      EXPECT_EQ(line(two.actions[rank]).substr(0, first.size()), first) << name;
      EXPECT_EQ(two.actions[rank].size(), 2 * one.actions[rank].size());
    }
  }
}

TEST(Families, pipedream_drains_once) {
  const ComputeProgram program =
      *generate({.name = "pipedream", .ranks = 3, .microbatches = 1, .updates = 4});
  EXPECT_EQ(program.version_rule, WeightVersionRule::Stashed);
  EXPECT_EQ(line(program.actions[0]), "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3");
  EXPECT_EQ(line(program.actions[2]), "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3");
}

TEST(Families, pipedream_2bw_runs_no_further_ahead_than_its_two_versions_reach) {
  // With m=2 the forward of microbatch 4 needs the weights after microbatches 0 and 1.
  const ComputeProgram program =
      *generate({.name = "pipedream-2bw", .ranks = 5, .microbatches = 2, .updates = 3});
  EXPECT_EQ(program.version_rule, WeightVersionRule::DoubleBuffered);
  EXPECT_EQ(line(program.actions[0]), "0F0 0F1 0F2 0B0 0F3 0B1 0F4 0B2 0F5 0B3 0B4 0B5");
  EXPECT_EQ(line(generate({.name = "pipedream-2bw", .ranks = 5, .microbatches = 4})->actions[0]),
            "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3");
}

// --- memory

TEST(Families, peaks_and_high_water_are_the_published_ones) {
  const ComputeProgram program = *generate({"interleaved-1f1b", 4, 8, 2});
  EXPECT_THAT(peak_activations_per_rank(program, true), ElementsAre(11, 9, 7, 5));
  EXPECT_THAT(high_water_per_stage(program), ElementsAre(8, 8, 7, 5, 4, 4, 3, 1));
  EXPECT_EQ(program.rank_of(program.loss_stage(), MicrobatchIndex(0)), RankIndex(3));
}

std::vector<int> peaks_of_1f1b_v(const std::vector<int>& extra) {
  return peak_activations_per_rank(
      *generate({.name = "1f1b-v", .ranks = 4, .microbatches = 16, .extra_warm_up_forwards = extra}), true);
}

TEST(Families, extra_warm_up_forwards_raise_the_peaks_of_their_ranks) {
  EXPECT_THAT(peaks_of_1f1b_v({}), ElementsAre(6, 6, 6, 6));
  EXPECT_THAT(peaks_of_1f1b_v({1}), ElementsAre(7, 7, 7, 7));
  EXPECT_THAT(peaks_of_1f1b_v({1, 0, 1, 1}), ElementsAre(7, 6, 7, 7));
}

TEST(Families, v_schedules_hold_the_published_share_on_every_rank) {
  const auto at_most = [](const char* name, int ranks, int most) {
    for (const int m : {1, ranks, 2 * ranks, 3 * ranks + 1}) {
      EXPECT_THAT(peak_activations_per_rank(*generate({name, ranks, m}), true), Each(Le(most)))
          << name << " P=" << ranks << " m=" << m;
    }
  };
  for (int ranks = 1; ranks <= 33; ++ranks) {
    at_most("v-min", ranks, 2 * ((ranks + 4) / 3));
    at_most("v-half", ranks, 2 * ((ranks + 2) / 2));
    at_most("zb-v", ranks, 2 * ranks);
    at_most("1f1b-v", ranks, 2 * (2 * ranks / 3 + 1));
    at_most("dualpipe-v", ranks, 2 * ranks + 1);
    if (ranks % 2 == 0) at_most("dualpipe", ranks, ranks + 1);
    if (ranks % 2 == 0) at_most("chimera", ranks, ranks + 1);
    at_most("zb-h1", ranks, ranks);
    at_most("zb-h2", ranks, std::max(2 * ranks - 1, 1));
  }
}

TEST(Families, memory_of_the_last_rank_does_not_grow_with_microbatches_or_chunks) {
  // A public planner's last stage needed more for every chunk. In 1F1B order the rank with the loss runs a
  // backward behind every forward.
  for (const char* name : {"1f1b", "zb-h1", "zb-h2", "pipedream", "pipedream-2bw"}) {
    for (const int m : {8, 9, 64})
      EXPECT_EQ(peak_activations_per_rank(*generate({name, 4, m}), false).back(), 1) << name;
  }
  for (const int chunks : {2, 3, 8}) {
    const ComputeProgram program = *generate({"interleaved-1f1b", 4, 64, chunks});
    EXPECT_EQ(high_water_per_stage(program).back(), 1);
    EXPECT_EQ(peak_activations_per_rank(program, true).back(), 4 * (chunks - 1) + 1);
  }
}

TEST(Families, schedules_but_the_named_ones_accumulate_in_microbatch_order) {
  // This is what makes their losses bit-identical. Two directions add up on two ranks.
  for (const std::string& name : schedule_names()) {
    const bool is_other = name.ends_with("-lifo") || name == "dualpipe" || name == "chimera";
    EXPECT_EQ(adds_in_an_order_of_its_own(name), is_other) << name;
    for (const int ranks : {2, 4, 8}) {
      for (int m = 2; m <= 19; ++m) {
        const ComputeProgram program = *generate({.name = name, .ranks = ranks, .microbatches = m});
        EXPECT_EQ(accumulates_in_microbatch_order(program), !is_other) << name << " " << ranks << " " << m;
      }
    }
  }
  EXPECT_FALSE(adds_in_an_order_of_its_own("file:gpipe-lifo"));
}

TEST(Families, input_gradients_out_of_order_are_another_order_too) {
  // Norms form their weight gradients with I: the order of W alone does not make the sum.
  ComputeProgram program = *generate({"zb-h1", 1, 2});
  const auto adds_in_order = [&](const std::vector<std::string>& actions) {
    program.actions[0].clear();
    for (const std::string& text : actions) program.actions[0].push_back(*parse_action(text));
    return accumulates_in_microbatch_order(program);
  };
  EXPECT_TRUE(adds_in_order({"0F0", "0F1", "0I0", "0I1", "0W0", "0W1"}));
  EXPECT_FALSE(adds_in_order({"0F0", "0F1", "0I1", "0I0", "0W0", "0W1"}));
  EXPECT_FALSE(adds_in_order({"0F0", "0F1", "0I0", "0I1", "0W1", "0W0"}));
  EXPECT_TRUE(adds_in_order({"0F0", "0F1", "0B0", "0I1", "0W1"}));
  EXPECT_FALSE(adds_in_order({"0F0", "0F1", "0I0", "0B1", "0W0"}));
}

// --- names, notes and refusals

TEST(Families, name_that_is_unknown_or_searched_is_refused_with_advice) {
  EXPECT_THAT(lines({"1f1bb", 2, 2, 1})[0], HasSubstr("did you mean '1f1b'?"));
  EXPECT_THAT(
      lines({"zb-auto", 2, 2, 1})[0],
      HasSubstr("'zb-auto' is searched for, with costs and a memory limit, not generated from a shape; "
                "generated are naive, gpipe, gpipe-lifo, 1f1b, "));
  EXPECT_THAT(lines({"zb_h2", 2, 2, 1})[0], HasSubstr("did you mean 'zb-h2'?"));
  EXPECT_THAT(lines({"", 2, 2, 1})[0], HasSubstr("unknown"));
  EXPECT_EQ(generate({std::string(1 << 20, 'x'), 2, 2, 1}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(known_schedule("v-auto"), Known::Designed);
  EXPECT_EQ(known_schedule("1f1bb"), Known::Unknown);
}

TEST(Families, catalogue_is_complete) {
  EXPECT_THAT(schedule_names(),
              ElementsAre("naive", "gpipe", "gpipe-lifo", "1f1b", "interleaved-1f1b", "looped-bfs",
                          "looped-bfs-lifo", "1f1b-v", "zb-h1", "zb-h2", "zb-v", "v-half", "v-min",
                          "dualpipe", "dualpipe-v", "chimera", "pipedream", "pipedream-2bw"));
  for (const std::string& name : schedule_names()) EXPECT_EQ(known_schedule(name), Known::Built) << name;
}

TEST(Families, stages_per_rank_are_the_family_s_own_where_nothing_is_said) {
  EXPECT_EQ(generate({"1f1b", 4, 8})->stages_per_rank, 1);
  EXPECT_EQ(generate({"dualpipe", 4, 8})->stages_per_rank, 1);
  EXPECT_EQ(generate({"zb-v", 4, 8})->stages_per_rank, 2);
  EXPECT_EQ(generate({"looped-bfs", 4, 8})->stages_per_rank, 2);
  EXPECT_EQ(generate({"looped-bfs", 4, 8, 3})->stages_per_rank, 3);
}

TEST(Families, fewer_microbatches_than_the_published_rule_asks_for_are_noted) {
  EXPECT_EQ(generate({"zb-v", 4, 7})->note, "");
  EXPECT_EQ(
      generate({"zb-v", 4, 6})->note,
      "zb-v has its published figures from m = 2P-1 = 7 on; with m = 6 its ranks idle for a larger part");
  EXPECT_THAT(generate({"pipedream-2bw", 8, 6})->note, HasSubstr("from m = P-1 = 7 on; with m = 6"));
  EXPECT_EQ(generate({"chimera", 4, 5})->note,
            "an odd m: one direction runs one microbatch more than the other");
}

TEST(Families, shape_out_of_bounds_is_refused_by_field) {
  EXPECT_THAT(lines({"1f1b", 0, 2, 1})[0], HasSubstr("ranks: expected 1 to 65536, found 0"));
  EXPECT_THAT(lines({"1f1b", 2, -1, 1})[0], HasSubstr("microbatches: expected"));
  EXPECT_THAT(lines({"interleaved-1f1b", 2, 2, 1025})[0],
              HasSubstr("stages_per_rank: expected 1 to 1024, found 1025"));
  EXPECT_THAT(lines({"1f1b", 2, 2, -1})[0], HasSubstr("stages_per_rank: expected"));
  EXPECT_THAT(lines({"1f1b", 2, 2, 2})[0], HasSubstr("stages_per_rank: schedule '1f1b' takes 1, found 2"));
  EXPECT_THAT(lines({"zb-v", 2, 2, 1})[0],
              HasSubstr("stages_per_rank: schedule 'zb-v' takes 2, found 1; its stages go down"));
  EXPECT_THAT(lines({"dualpipe", 5, 10})[0],
              HasSubstr("ranks: schedule 'dualpipe' takes an even number, found 5"));
  EXPECT_THAT(lines({"chimera", 1, 1})[0], HasSubstr("even number, found 1"));
  EXPECT_THAT(lines({.name = "1f1b", .updates = 0})[0], HasSubstr("updates: expected 1 to 65536, found 0"));
  EXPECT_THAT(lines({.name = "1f1b", .microbatches = 1 << 15, .updates = 1 << 15})[0],
              HasSubstr("updates: 32768 updates x 32768 microbatches are 1073741824"));
  EXPECT_THAT(lines({"gpipe", 65536, 65536, 1})[0], HasSubstr("8589934592 actions, at most 16777216"));
  EXPECT_THAT(lines({"zb-v", 65536, 1})[0], HasSubstr("65536 ranks x 65536 microbatches"));
}

TEST(Families, extra_warm_up_forwards_are_refused_by_field) {
  const auto refusal = [](const char* name, std::vector<int> extra) {
    return lines(
        {.name = name, .ranks = 3, .microbatches = 2, .extra_warm_up_forwards = std::move(extra)})[0];
  };
  EXPECT_THAT(refusal("1f1b", {1}), HasSubstr("extra_warm_up_forwards: schedule '1f1b' takes none"));
  EXPECT_THAT(refusal("1f1b-v", {1, 1}), HasSubstr("expected 1 entry or 3, one per rank, found 2"));
  EXPECT_THAT(refusal("1f1b-v", {65}), HasSubstr("expected 0 to 64, found 65"));
  EXPECT_THAT(refusal("1f1b-v", {-1}), HasSubstr("found -1"));
}

}  // namespace
}  // namespace penstock::plan
