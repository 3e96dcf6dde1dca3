#include "plan/interop/torch_csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "plan/schedule/families.h"

namespace penstock::plan {
namespace {

using testing::HasSubstr;

// Files that PyTorch 2.14.1's own generators wrote, with line ends of Unix.
constexpr const char* kWritten[] = {"DualPipeV_P2_V2_M4", "Interleaved1F1B_P2_V3_M4",
                                    "InterleavedZeroBubble_P4_V2_M8", "LoopedBFS_P2_V2_M4",
                                    "ZBVZeroBubble_P4_V2_M8"};

std::string written(const std::string& name) {
  std::ifstream file(PENSTOCK_SOURCE_DIR "/plan/interop/testing/torch_csv/" + name + ".csv",
                     std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string without_empty_cells(const std::string& text) {
  std::string kept;
  for (const char c : text) {
    const bool begins = kept.empty() || kept.back() == '\n';
    if (c == ',' && (begins || kept.back() == ',')) continue;
    kept += c;
  }
  return kept;
}

TorchImport import(const std::string& text) {
  return import_torch_csv(text, "x.csv");
}

// All that is wrong, a line each.
std::string problems(const std::string& text) {
  std::string lines;
  for (const Violation& violation : import(text).violations) lines += violation.to_string() + "\n";
  return lines;
}

ComputeProgram program(const std::string& name, int ranks, int microbatches, int stages_per_rank = 1) {
  return generate(
             {.name = name, .ranks = ranks, .microbatches = microbatches, .stages_per_rank = stages_per_rank})
      .value();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(TorchCsv, what_pytorch_wrote_comes_back_to_the_letter) {
  // Its own generators and its own lowering: ours must agree on every send and receive.
  for (const std::string name : kWritten) {
    const TorchImport compute = import(written(name + ".compute"));
    ASSERT_TRUE(compute.violations.empty()) << name << compute.violations.front().to_string();
    EXPECT_EQ(compute.format, TorchFormat::ComputeOnly);
    EXPECT_EQ(program_to_torch_csv(compute.program, TorchFormat::ComputeOnly).value(),
              without_empty_cells(written(name + ".compute")));

    const TorchImport comms = import(written(name + ".comms"));
    ASSERT_TRUE(comms.violations.empty()) << name << comms.violations.front().to_string();
    EXPECT_EQ(comms.format, TorchFormat::ComputeComms);
    EXPECT_EQ(comms.program.actions, compute.program.actions) << name;
    EXPECT_EQ(program_to_torch_csv(comms.program, TorchFormat::ComputeComms).value(),
              written(name + ".comms"));
  }
}

TEST(TorchCsv, shape_and_placement_are_read_off_the_actions) {
  const ComputeProgram read = import(written("ZBVZeroBubble_P4_V2_M8.compute")).program;
  EXPECT_EQ(read.schedule, "file:x.csv");
  EXPECT_EQ(read.ranks, 4);
  EXPECT_EQ(read.stages_per_rank, 2);
  EXPECT_EQ(read.microbatches, 8);
  EXPECT_EQ(read.placement, v_placement(4));
}

TEST(TorchCsv, the_file_that_pytorch_writes_wrongly_is_refused_by_rank_and_action) {
  // Its one-stage generator numbers the last rank's microbatches from 1.
  const TorchImport read = import(written("INVALID_1F1B_P4_M8"));
  ASSERT_FALSE(read.violations.empty());
  EXPECT_EQ(read.violations[0].rank, RankIndex(3));
  EXPECT_EQ(read.violations[0].action, "3F8");
  EXPECT_EQ(read.violations[0].position, 14);
}

TEST(TorchCsv, our_own_programs_round_trip) {
  for (const std::string name : {"naive", "gpipe", "1f1b", "interleaved-1f1b"}) {
    for (const TorchFormat format : {TorchFormat::ComputeOnly, TorchFormat::ComputeComms}) {
      for (const int ranks : {1, 2, 4}) {
        const ComputeProgram ours = program(name, ranks, 8, name == "interleaved-1f1b" ? 5 : 1);
        const TorchImport read = import(program_to_torch_csv(ours, format).value());
        ASSERT_TRUE(read.violations.empty()) << name << read.violations.front().to_string();
        EXPECT_EQ(read.program.actions, ours.actions);
        EXPECT_EQ(read.program.placement, ours.placement);
      }
    }
  }
}

TEST(TorchCsv, what_pytorch_accepts_and_runs_right_is_accepted) {
  for (const char* text : {
           "0F0,0F1,,0B0,,0B1\n,1F0,1B0,1F1,1B1\n",            // padded
           "0F0,0F1,0B0,0B1\r\n 1F0 , 1B0,1F1,1B1 \r\n",       // line ends of Windows, blanks
           "\"0F0\",0F1,0B0,0B1\n1F0,1B0,1F1,\"1B1\"\n",       // quoted cells
           "0F0,0F1,0B0,0B1,,,\n1F0,1B0,1F1,1B1,\n",           // commas at the end
           "0F0,0F1,0I0,0B1,0W0\n1F0,1B0,1F1,1I1,1W1",         // mixed backwards, no line end at the end
           "1F0,1B0,1F1,1B1\n0F0,0F1,0B0,0B1\n",               // ranks swapped
           "0F0,1F0,2F0,2B0,1B0,0B0\n3F0,3B0\n",               // three stages and one
           "0F0,0F1,0B0,0B1\n1F0,(1B0;1F1)OVERLAP_F_B,1B1\n",  // a pair
       }) {
    EXPECT_EQ(problems(text), "") << text;
  }
}

TEST(TorchCsv, a_pair_cannot_wait_for_itself) {
  EXPECT_THAT(problems("0F0,0F1,0B0,0B1\n1F0,1B0,(1F1;1B1)OVERLAP_F_B\n"),
              HasSubstr("runs in the same pair"));
}

TEST(TorchCsv, the_whole_cell_must_match_the_grammar) {
  // PyTorch matches a prefix: 0F1xyz runs as 0F1, and 2BW0 as a backward without a microbatch.
  for (const char* cell :
       {"0F1xyz", "0F1.5", "0WAIT_SEND_F0", "0f0", "-1F0", "F0", "0 F1", "None", "0F", "0UNSHARD0",
        "(0F0;0B0) OVERLAP_F_B", "(0F0)OVERLAP_F_B", "(0F0;0B0;0F1)OVERLAP_F_B", "(0SEND_F0;0B0)OVERLAP_F_B",
        "(0F0;0B0", "0F99999999999", "99999999999F0", "0F+1", "0F0F0"}) {
    const TorchImport read = import(std::string("0F0,0B0,") + cell + "\n");
    ASSERT_EQ(read.violations.size(), 1u) << cell;
    EXPECT_EQ(read.violations[0].rule, "format");
    EXPECT_EQ(read.violations[0].rank, RankIndex(0));
    EXPECT_EQ(read.violations[0].position, 2);
    EXPECT_EQ(read.violations[0].action, cell);
  }
}

TEST(TorchCsv, files_are_lines_of_ranks_and_nothing_else) {
  EXPECT_THAT(problems("\xEF\xBB\xBF"
                       "0F0,0B0\n"),
              HasSubstr("byte order mark"));
  EXPECT_THAT(problems("# mine\n0F0,0B0\n"), HasSubstr("comment"));
  EXPECT_THAT(problems("0F0,0B0\n\n"), HasSubstr("blank"));
  EXPECT_THAT(problems(""), HasSubstr("blank"));
  EXPECT_THAT(problems("0F0,0B0\n,,\n"), HasSubstr("expected a multiple of 2 stages for 2 ranks, found 1"));
  EXPECT_THAT(problems(std::string("0F0,0B0,\0,0F1\x1b[2J\n", 16)), HasSubstr("0F1?"));
}

TEST(TorchCsv, letters_of_older_files_are_named) {
  // Old files wrote B for the input gradient and BW for the full backward.
  EXPECT_THAT(problems("0F0,0BW0\n"), HasSubstr("write B for BW, and I for their B"));
  EXPECT_THAT(problems("0F0,0B0,0W0\n"), HasSubstr("there is W and no I: the letters of older files"));
}

TEST(TorchCsv, a_stage_stands_on_one_rank) {
  const TorchImport read = import("0F0,0B0,1B0\n1F0\n");
  ASSERT_EQ(read.violations.size(), 1u);
  EXPECT_EQ(read.violations[0].rule, "ownership");
  EXPECT_EQ(read.violations[0].rank, RankIndex(1));
  EXPECT_EQ(read.violations[0].action, "1F0");
  EXPECT_THAT(problems("0F0,0B0\n2F0,2B0\n"), HasSubstr("stage 1 has no action; expected stages 0 to 2"));
}

TEST(TorchCsv, what_pytorch_counts_in_sets_is_refused_when_it_is_there_twice) {
  EXPECT_THAT(problems("0F0,0F0,0B0\n"), HasSubstr("complete: rank 0 position 1 0F0"));
  EXPECT_THAT(problems("0F0,0B0,0F1\n"), HasSubstr("0B1"));
  EXPECT_THAT(problems("0F0,0F1,0B1,0B0,0B0\n"), HasSubstr("0B0"));
  EXPECT_THAT(problems("0B0,0F0\n"), HasSubstr("order"));
}

TEST(TorchCsv, losses_out_of_order_would_be_silently_wrong) {
  // PyTorch stores losses in the order of arrival and fetches them by microbatch.
  const std::string text = "0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n";
  EXPECT_THAT(problems(text), HasSubstr("numerics: rank 1 position 0 1F1"));
  EXPECT_THAT(problems(text), HasSubstr("expected 1F0 here"));
  EXPECT_EQ(problems("0F1,0F0,0B0,0B1\n1F0,1F1,1B0,1B1\n"), "");  // only the loss stage's matter
}

// Two ranks, two microbatches, forwards first.
std::string small_comms() {
  return program_to_torch_csv(program("gpipe", 2, 2), TorchFormat::ComputeComms).value();
}

TEST(TorchCsv, transfers_without_tags_must_match_in_order) {
  ASSERT_EQ(problems(small_comms()), "");
  const std::string swapped = replaced(small_comms(), "1RECV_F0,1F0,1RECV_F1,", "1RECV_F1,1RECV_F0,1F0,");
  EXPECT_THAT(problems(swapped), HasSubstr("transfers: rank 1 position 1 1RECV_F1: is received where rank 0 "
                                           "sends 0SEND_F0"));
}

TEST(TorchCsv, two_ranks_with_two_stages_each_tell_their_messages_apart) {
  // The next and the previous rank are one: activations and gradients share each direction, in one order.
  const std::string text =
      program_to_torch_csv(program("interleaved-1f1b", 2, 4, 2), TorchFormat::ComputeComms).value();
  ASSERT_EQ(problems(text), "");
  EXPECT_THAT(problems(replaced(text, "1RECV_B0,3B1,3SEND_B1,1RECV_F3,", "1RECV_F3,1RECV_B0,3B1,3SEND_B1,")),
              HasSubstr("transfers: rank 1"));
}

TEST(TorchCsv, every_transfer_stands_once_at_its_place) {
  EXPECT_THAT(problems(replaced(small_comms(), "0SEND_F0,", "")),
              HasSubstr("0SEND_F0: is missing: 1RECV_F0 would wait"));
  EXPECT_THAT(problems(replaced(small_comms(), "1RECV_F0,", "")), HasSubstr("1RECV_F0: is missing"));
  EXPECT_THAT(problems(replaced(small_comms(), "0SEND_F0,", "0SEND_F0,0SEND_F0,")),
              HasSubstr("is there twice"));
  EXPECT_THAT(problems(replaced(small_comms(), "0F0,0SEND_F0,", "0SEND_F0,0F0,")),
              HasSubstr("before its producer"));
  EXPECT_THAT(problems(replaced(small_comms(), "1RECV_F0,1F0,", "1F0,1RECV_F0,")),
              HasSubstr("behind its consumer"));
  EXPECT_THAT(problems(replaced(small_comms(), "1F0,", "1F0,1SEND_F0,")), HasSubstr("there is no stage 2"));
  EXPECT_THAT(problems(replaced(small_comms(), "0F0,", "0F0,0RECV_F0,")), HasSubstr("there is no stage -1"));
  EXPECT_THAT(problems(replaced(small_comms(), "0F0,", "0F0,1SEND_B0,")),
              HasSubstr("stage 1 stands on rank 1"));
  EXPECT_THAT(problems(replaced(small_comms(), "0F0,", "0F0,0SEND_F7,")),
              HasSubstr("expected a microbatch of 0 to 1"));
  EXPECT_THAT(problems(replaced(small_comms(), "0F0,", "0F0,7UNSHARD,")),
              HasSubstr("expected a stage of 0 to 1"));
  EXPECT_THAT(problems("0F0,0SEND_F0,1F0,1B0,0B0,0REDUCE_GRAD,1REDUCE_GRAD\n"),
              HasSubstr("stand on one rank"));
}

TEST(TorchCsv, gradients_are_reduced_once_behind_the_last_backward) {
  EXPECT_THAT(problems(replaced(small_comms(), "0REDUCE_GRAD,", "")),
              HasSubstr("0REDUCE_GRAD: is missing: the gradients of stage 0 would stay 2 times too large"));
  EXPECT_THAT(problems(replaced(small_comms(), "1B1,1SEND_B1,1REDUCE_GRAD", "1REDUCE_GRAD,1B1,1SEND_B1")),
              HasSubstr("stands before the stage's last backward"));
  EXPECT_THAT(problems(replaced(small_comms(), "1REDUCE_GRAD,", "1REDUCE_GRAD,1REDUCE_GRAD,")),
              HasSubstr("is there twice"));
}

TEST(TorchCsv, an_empty_cell_belongs_to_compute_only) {
  EXPECT_THAT(problems(replaced(small_comms(), "0F0,", "0F0,,")),
              HasSubstr("rank 0 position 2: a compute_comms file has no empty cells"));
  const TorchImport read = import_torch_csv(small_comms(), "x.csv", TorchFormat::ComputeOnly);
  ASSERT_EQ(read.violations.size(), 1u);
  EXPECT_EQ(read.violations[0].action, "0UNSHARD");
}

TEST(TorchCsv, what_pytorch_cannot_express_is_not_written) {
  const auto refused = [](const ComputeProgram& written, const std::string& why) {
    const auto text = program_to_torch_csv(written, TorchFormat::ComputeOnly);
    ASSERT_FALSE(text.ok());
    EXPECT_THAT(message(text.status()), HasSubstr(why));
  };
  ComputeProgram replicated = program("1f1b", 2, 2);
  replicated.placement[0].push_back(RankIndex(1));
  refused(replicated, "stages stand on two ranks");

  ComputeProgram evaluation = program("1f1b", 2, 2);
  evaluation.forward_only = true;
  refused(evaluation, "without backwards");

  ComputeProgram asynchronous = program("1f1b", 2, 2);
  asynchronous.updates = 3;
  refused(asynchronous, "one optimizer step; this program spans 3");

  ComputeProgram stashing = program("1f1b", 2, 2);
  stashing.version_rule = WeightVersionRule::Stashed;
  refused(stashing, "one version of the weights");

  ComputeProgram swapped = program("gpipe", 1, 2);
  std::swap(swapped.actions[0][0], swapped.actions[0][1]);
  refused(swapped, "0F1: PyTorch gives losses to microbatches by arrival; expected 0F0 here");
}

TEST(TorchCsv, more_than_twenty_problems_are_cut) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "0x,";
  EXPECT_EQ(import(text).violations.size(), 20u);
}

}  // namespace
}  // namespace penstock::plan
