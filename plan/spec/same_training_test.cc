#include "plan/spec/same_training.h"

#include <gtest/gtest.h>

namespace penstock::plan {
namespace {

constexpr const char* kJob =
    "name: a\n"
    "model: {hidden_size: 8, from: \"/w\"}\n"
    "data: {source: [a.txt, b.txt], sequence_length: 16}\n"
    "train:\n"
    "  steps: 10\n"
    "  optimizer: {lr: 1e-3}\n"
    "parallel: {pipeline: 4}\n";

std::string with(const std::string& piece, const std::string& replacement) {
  std::string text = kJob;
  const size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece;
  return text.replace(at, piece.size(), replacement);
}

std::string difference(const std::string& after) {
  return message(check_same_training(kJob, after));
}

TEST(SameTraining, cut_of_the_model_may_change_and_so_may_the_order_of_keys) {
  EXPECT_EQ(difference(kJob), "");
  EXPECT_EQ(difference(with("pipeline: 4", "pipeline: 2, schedule: gpipe")), "");
  EXPECT_EQ(difference(with("name: a", "name: b")), "");
  EXPECT_EQ(difference(with("hidden_size: 8, from: \"/w\"", "from: \"/w\", hidden_size: 8")), "");
}

TEST(SameTraining, first_difference_is_told_with_its_line) {
  EXPECT_EQ(difference(with("lr: 1e-3", "lr: 1e-2")),
            "line 6: train.optimizer.lr: expected 1e-3, as the job has it, found 1e-2");
  EXPECT_EQ(difference(with("  steps: 10\n", "  steps: 10\n  seed: 2\n")),
            "line 6: train.seed: expected no such key, as the job has it, found 2");
  EXPECT_EQ(difference(with("b.txt", "c.txt")),
            "line 3: data.source[1]: expected b.txt, as the job has it, found c.txt");
  EXPECT_EQ(difference(with("[a.txt, b.txt]", "a.txt")),
            "line 3: data.source: expected a list of 2, as the job has it, found a.txt");
  EXPECT_EQ(difference(with(", from: \"/w\"", "")),
            "line 2: model.from: expected \"/w\", as the job has it, found no such key");
}

}  // namespace
}  // namespace penstock::plan
