#include "plan/schedule/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"

namespace penstock::plan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

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

TEST(Families, naive_runs_one_microbatch_at_a_time) {
  EXPECT_THAT(lines({"naive", 2, 2, 1}), ElementsAre("0F0 0B0 0F1 0B1", "1F0 1B0 1F1 1B1"));
}

TEST(Families, gpipe_runs_backwards_in_microbatch_order) {
  // Last in, first out would accumulate gradients in another order,
  // and losses would differ in their last bits.
  EXPECT_THAT(lines({"gpipe", 2, 3, 1}), ElementsAre("0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1F1 1F2 1B0 1B1 1B2"));
}

TEST(Families, one_f_one_b_is_the_published_order) {
  EXPECT_THAT(lines({"1f1b", 4, 8, 1}),
              ElementsAre("0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7",
                          "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7",
                          "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7",
                          "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7"));
  EXPECT_THAT(lines({"1f1b", 2, 4, 1}),
              ElementsAre("0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3", "1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"));
}

TEST(Families, interleaved_is_the_published_order) {
  EXPECT_THAT(
      lines({"interleaved-1f1b", 4, 8, 2}),
      ElementsAre(
          "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 0F4 0F5 0F6 4B0 0F7 4B1 4F4 4B2 4F5 4B3 4F6 0B0 4F7 0B1 0B2 0B3 "
          "4B4 4B5 4B6 4B7 0B4 0B5 0B6 0B7",
          "1F0 1F1 1F2 1F3 5F0 5F1 5F2 5F3 1F4 5B0 1F5 5B1 1F6 5B2 1F7 5B3 5F4 1B0 5F5 1B1 5F6 1B2 5F7 1B3 "
          "5B4 5B5 5B6 5B7 1B4 1B5 1B6 1B7",
          "2F0 2F1 2F2 2F3 6F0 6F1 6F2 6B0 6F3 6B1 2F4 6B2 2F5 6B3 2F6 2B0 2F7 2B1 6F4 2B2 6F5 2B3 6F6 6B4 "
          "6F7 6B5 6B6 6B7 2B4 2B5 2B6 2B7",
          "3F0 3F1 3F2 3F3 7F0 7B0 7F1 7B1 7F2 7B2 7F3 7B3 3F4 3B0 3F5 3B1 3F6 3B2 3F7 3B3 7F4 7B4 7F5 7B5 "
          "7F6 7B6 7F7 7B7 3B4 3B5 3B6 3B7"));
  EXPECT_THAT(lines({"interleaved-1f1b", 2, 4, 2}),
              ElementsAre("0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
                          "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3"));
}

TEST(Families, interleaved_shares_microbatches_out_where_ranks_do_not_divide_them) {
  // m=9 on 4 ranks: groups of 5 and 4, so that no group is shorter than the pipeline.
  const std::vector<std::string> text = lines({"interleaved-1f1b", 4, 9, 2});
  EXPECT_THAT(text[3], testing::StartsWith("3F0 3F1 3F2 3F3 3F4 7F0 7B0 7F1 7B1"));
  EXPECT_THAT(text[3], HasSubstr("7F4 7B4 3F5 3B0 3F6 3B1"));
}

TEST(Families, peaks_and_high_water_are_the_published_ones) {
  const ComputeProgram program = *generate({"interleaved-1f1b", 4, 8, 2});
  EXPECT_THAT(peak_activations_per_rank(program, true), ElementsAre(11, 9, 7, 5));
  EXPECT_THAT(high_water_per_stage(program), ElementsAre(8, 8, 7, 5, 4, 4, 3, 1));
  EXPECT_EQ(program.rank_of(program.loss_stage(), MicrobatchIndex(0)), RankIndex(3));
}

TEST(Families, every_schedule_accumulates_in_microbatch_order) {
  // This is what makes their losses bit-identical.
  for (const std::string& name : schedule_names()) {
    for (int m = 1; m <= 11; ++m) {
      EXPECT_TRUE(
          accumulates_in_microbatch_order(*generate({name, 3, m, name == "interleaved-1f1b" ? 3 : 1})))
          << name << m;
    }
  }
}

TEST(Families, name_that_is_unknown_or_not_built_is_refused_with_advice) {
  EXPECT_THAT(lines({"1f1bb", 2, 2, 1})[0], HasSubstr("did you mean '1f1b'?"));
  EXPECT_THAT(lines({"zb-h2", 2, 2, 1})[0],
              HasSubstr("'zb-h2' is not built yet; built are naive, gpipe, 1f1b, interleaved-1f1b"));
  EXPECT_THAT(lines({"zb_h2", 2, 2, 1})[0], HasSubstr("did you mean 'zb-h2'?"));
  EXPECT_THAT(lines({"", 2, 2, 1})[0], HasSubstr("unknown"));
  EXPECT_EQ(generate({std::string(1 << 20, 'x'), 2, 2, 1}).status().code(), StatusCode::kInvalidArgument);
  for (const char* later :
       {"gpipe-lifo", "looped-bfs", "looped-bfs-lifo", "1f1b-v", "zb-h1", "zb-h2", "zb-auto", "zb-v",
        "v-half", "v-min", "v-auto", "dualpipe", "dualpipe-v", "chimera", "pipedream", "pipedream-2bw"}) {
    EXPECT_THAT(lines({later, 2, 2, 1})[0], HasSubstr("not built yet"));
    EXPECT_EQ(known_schedule(later), Known::Designed);
  }
}

TEST(Families, every_name_on_the_list_is_built) {
  for (const std::string& name : schedule_names()) EXPECT_EQ(known_schedule(name), Known::Built) << name;
  EXPECT_EQ(known_schedule("1f1bb"), Known::Unknown);
}

TEST(Families, shape_out_of_bounds_is_refused_by_field) {
  EXPECT_THAT(lines({"1f1b", 0, 2, 1})[0], HasSubstr("ranks: expected 1 to 65536, found 0"));
  EXPECT_THAT(lines({"1f1b", 2, -1, 1})[0], HasSubstr("microbatches: expected"));
  EXPECT_THAT(lines({"interleaved-1f1b", 2, 2, 1025})[0],
              HasSubstr("stages_per_rank: expected 1 to 1024, found 1025"));
  EXPECT_THAT(lines({"1f1b", 2, 2, 2})[0], HasSubstr("stages_per_rank: schedule '1f1b' takes 1, found 2"));
  EXPECT_THAT(lines({"gpipe", 65536, 65536, 1})[0], HasSubstr("8589934592 actions, at most 16777216"));
}

}  // namespace
}  // namespace penstock::plan
