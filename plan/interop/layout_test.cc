#include "plan/interop/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace penstock::plan {
namespace {

using testing::HasSubstr;

// Every stage as Megatron's letters, separated by '|'.
std::string letters(const Layout& layout) {
  std::string text;
  for (size_t stage = 0; stage < layout.size(); ++stage) {
    if (stage > 0) text += '|';
    for (const LayoutItem item : layout[stage]) text += static_cast<char>(item);
  }
  return text;
}

Status checked(const std::string& text, const LayoutShape& shape) {
  const StatusOr<Layout> layout = parse_megatron_layout(text);
  if (!layout.ok()) return layout.status();
  return check_megatron_layout(*layout, shape);
}

std::string refusal(const std::string& text, const LayoutShape& shape) {
  const Status status = checked(text, shape);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  return message(status);
}

TEST(MegatronLayout, what_its_validator_accepts_is_accepted) {
  struct Example {
    const char* text;
    int ranks, layers, mtp;
    size_t stages;
  };
  for (const Example& example :
       {Example{"Et*3|(tt|)*29,m|L", 16, 61, 1, 32}, Example{"E|t*3|(t|)*5mL", 4, 8, 1, 8},
        Example{"E|(t|)*3,mL", 5, 3, 1, 5}, Example{"E||t|L", 2, 1, 0, 4}, Example{"E||t|L", 4, 1, 0, 4},
        Example{"Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 8, 80, 0, 40}, Example{"E,(t)*13|(t)*14,L", 2, 27, 0, 2},
        Example{"Ettt|tttL", 2, 6, 0, 2}, Example{"E|*3tL", 4, 1, 0, 4}}) {
    EXPECT_TRUE(checked(example.text, {example.ranks, example.layers, example.mtp}).ok()) << example.text;
    EXPECT_EQ(parse_megatron_layout(example.text)->size(), example.stages) << example.text;
  }
}

TEST(MegatronLayout, what_its_validator_refuses_is_refused_with_the_reason) {
  // The first one stands in Megatron's own help.
  EXPECT_THAT(refusal("E|(t|)*3,m|m||L", {8, 3, 2}), HasSubstr("stage 5: expected all m in one stage"));
  EXPECT_THAT(refusal("tE|tL", {2, 2, {}}), HasSubstr("stage 0: expected E first, found t"));
  EXPECT_THAT(refusal("EE|tL", {2, 1, {}}), HasSubstr("expected E once, first, found it 2 times"));
  EXPECT_THAT(refusal("Et|mtL", {2, 2, 1}), HasSubstr("stage 1: expected no t behind an m"));
  EXPECT_THAT(refusal("E t|tL", {2, 2, {}}),
              HasSubstr("character 2: expected E, t, m, L or |, found a blank"));
  EXPECT_THAT(refusal("ettt|tttL", {2, 6, {}}),
              HasSubstr("character 1: expected E, t, m, L or |, found e: the letters' case"));
  EXPECT_THAT(refusal("E((t|)*2)*2L", {2, 2, {}}),
              HasSubstr("character 3: expected E, t, m, L or |, found (: brackets"));
  EXPECT_THAT(refusal("E(t|t)L", {2, 2, {}}),
              HasSubstr("character 2: expected E, t, m, L or |, found (: brackets"));
  EXPECT_THAT(refusal("Et**2L", {1, 2, {}}), HasSubstr("character 3: expected E, t, m, L or |, found *"));
  EXPECT_THAT(refusal("Ettt|tttL", {2, 7, {}}), HasSubstr("expected 7 decoder layers (t), found 6"));
  EXPECT_THAT(refusal("Et|tmL", {2, 2, 0}),
              HasSubstr("expected 0 multi-token prediction layers (m), found 1"));
  EXPECT_THAT(refusal("E|t|L", {2, 1, {}}),
              HasSubstr("expected a multiple of 2 stages for 2 ranks, found 3"));
  EXPECT_THAT(refusal("Et|tLt", {2, 3, {}}), HasSubstr("stage 1: expected L last, found t"));
  EXPECT_THAT(refusal("E|m|t|L", {2, 1, 1}),
              HasSubstr("stage 1: expected m in the last stage of its rank 1, which is stage 3"));
  EXPECT_THAT(refusal("", {1, {}, {}}), HasSubstr("expected E once, first, found it 0 times"));
  EXPECT_THAT(refusal("EtL", {0, {}, {}}), HasSubstr("at least 1 rank"));
}

TEST(MegatronLayout, a_second_repetition_expands_as_megatron_expands_it) {
  // By text: the first pass leaves "t|t|*2", the second repeats the bar.
  EXPECT_EQ(letters(*parse_megatron_layout("(t|)*2*2")), "t|t||");
  EXPECT_EQ(letters(*parse_megatron_layout("Et*0L")), "EL");
}

TEST(MegatronLayout, a_text_that_explodes_is_refused) {
  EXPECT_THAT(refusal("E(t|)*9999999L", {1, {}, {}}),
              HasSubstr("character 3: expected at most 1048576 characters"));
  EXPECT_THAT(refusal("Et*99999999999999999999L", {1, {}, {}}), HasSubstr("character 2: expected at most"));
}

TEST(MegatronLayout, what_is_written_expands_to_the_same_stages) {
  EXPECT_EQ(megatron_layout(*parse_megatron_layout("Et*3|(tt|)*29,m|L")), "Ettt|(tt|)*29,m|L");
  EXPECT_EQ(megatron_layout(*parse_megatron_layout("E||t|L")), "E||t|L");
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    Layout layout(1 + random() % 20);
    for (auto& stage : layout) {
      const int equal = static_cast<int>(random() % 3);
      stage.assign(equal == 0 ? random() % 12 : 2, LayoutItem::Decoder);
      if (random() % 5 == 0) stage.push_back(LayoutItem::Loss);
    }
    EXPECT_EQ(letters(*parse_megatron_layout(megatron_layout(layout))), letters(layout));
  }
}

TEST(Layout, every_form_of_a_split_is_read) {
  const std::string megatron = "Et|tt|L";
  for (const char* text :
       {"Et|tt|L", " Et|tt|L\n", R"([["embedding", "decoder"], ["Decoder ", "decoder"], ["loss"]])",
        R"([["tok_embeddings", "layers.0"], ["layers.1", "layers.2"], ["norm", "lm_head"]])",
        R"([["embedding", 0], [1, 2], ["head"]])", R"([["embedding", "0"], ["1", "2"], ["head"]])"}) {
    const StatusOr<Layout> layout = parse_layout(text);
    ASSERT_TRUE(layout.ok()) << text << message(layout.status());
    EXPECT_EQ(letters(*layout), megatron);
  }
}

TEST(Layout, a_list_that_is_none_is_refused_at_its_place) {
  const auto refused = [](const char* text, const char* why) {
    const StatusOr<Layout> layout = parse_layout(text);
    ASSERT_EQ(layout.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(message(layout.status()), HasSubstr(why));
  };
  refused("[", "not JSON");
  refused("[]", "expected a list of 1 to");
  refused(R"([["embedding"], "head"])", "[1]: expected the list of a stage's items, found \"head\"");
  refused(R"([["embedding", 0], [2, "head"]])", "[1][0]: expected layer 1 next in model order, found 2");
  refused(R"([["embedding", 0], [-1, "head"]])", "[1][0]: expected embedding, decoder");
  refused(R"([["embedding", "layers.x"]])", "[0][1]: expected embedding, decoder");
  refused(R"([["embedding", "layers.0", 1]])", "[0][2]: expected names of one kind");
  refused(R"([["tok_embeddings", "norm"], ["lm_head"]])", "[0]: expected lm_head behind norm");
  refused(R"([["tok_embeddings", "lm_head"]])", "[0][1]: expected norm and lm_head behind each other");
  refused(R"([["embedding", null]])", "found null");
}

TEST(Layout, a_split_is_written_in_every_form) {
  const StatusOr<Split> split = split_from_layout(*parse_megatron_layout("Et|tt|L"));
  ASSERT_TRUE(split.ok()) << message(split.status());
  EXPECT_EQ(letters(layout_from_split(*split)), "Et|tt|L");
  EXPECT_EQ(split_to_json(*split), "[[\"embedding\", 0],\n [1, 2],\n [\"head\"]]\n");
  EXPECT_EQ(
      torchtitan_parts(*split),
      "[[\"tok_embeddings\", \"layers.0\"],\n [\"layers.1\", \"layers.2\"],\n [\"norm\", \"lm_head\"]]\n");
  EXPECT_EQ(letters(*parse_layout(torchtitan_parts(*split))), "Et|tt|L");
  EXPECT_EQ(letters(*parse_layout(split_to_json(*split))), "Et|tt|L");
}

TEST(Layout, what_a_split_cannot_say_is_refused) {
  const auto refused = [](const char* text, const char* why) {
    const StatusOr<Split> split = split_from_layout(*parse_megatron_layout(text));
    ASSERT_FALSE(split.ok()) << text;
    EXPECT_THAT(message(split.status()), HasSubstr(why));
  };
  refused("E||t|L", "split[1]: expected at least one item in every stage, found none");
  refused("Et|mL", "stage 1: a split has no multi-token prediction");
  refused("tE|L", "split[0]: expected embedding next in model order");
}

}  // namespace
}  // namespace penstock::plan
