// Token files that nobody meant to write: every reader answers with a file that holds what it promises, or with a
// message. Under the sanitizers a read outside of the file would end the program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "base/token_files/megatron_index.h"
#include "base/token_files/npy_header.h"
#include "base/token_files/token_file.h"
#include "tests/fuzz/mutator.h"

namespace penstock {
namespace {

std::string fixture(const std::string& name) {
  std::ifstream file(PENSTOCK_SOURCE_DIR "/base/token_files/testing/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::vector<std::string> kWords = {"<u2",
                                         "<i8",
                                         "descr",
                                         "shape",
                                         "fortran_order",
                                         "False",
                                         "(",
                                         ")",
                                         ",",
                                         "'",
                                         "{",
                                         "}",
                                         "-1",
                                         "9223372036854775807",
                                         "MMIDIDX",
                                         "\x93NUMPY",
                                         std::string(8, '\0'),
                                         std::string(8, '\xff'),
                                         std::string(4, '\x7f')};

void expect_a_readable_refusal(const Status& status) {
  EXPECT_TRUE(status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kDataLoss)
      << status;
  const std::string text = message(status);
  EXPECT_FALSE(text.empty());
  EXPECT_LE(text.size(), 1000u);
  for (const char c : text) EXPECT_GE(static_cast<unsigned char>(c), 0x20u) << text;
}

// The mapped bytes end where the vector ends: the sanitizer sees every byte beyond.
std::vector<uint8_t> exact(const std::string& text) {
  return {text.begin(), text.end()};
}

TEST(FuzzTokenFiles, every_npy_header_is_sound_or_refused) {
  fuzz::Mutator mutator("npy header", kWords);
  fuzz::Rounds rounds(20'000);
  const std::vector<std::string> seeds = {fixture("uint16.npy"), fixture("uint32_version2.npy"),
                                          fixture("int64_version3.npy"), fixture("matrix.npy"),
                                          fixture("record.npy")};
  int accepted = 0;
  while (rounds.next() && !::testing::Test::HasFailure()) {
    const std::vector<uint8_t> bytes = exact(mutator.mutated(seeds[mutator.below(seeds.size())]));
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()));
    const StatusOr<NpyHeader> header = read_npy_header(bytes);
    if (!header.ok()) {
      expect_a_readable_refusal(header.status());
      continue;
    }
    ++accepted;
    EXPECT_GE(header->tokens, 0);
    EXPECT_EQ(header->bytes + header->tokens * bytes_of(header->type), static_cast<int64_t>(bytes.size()));
  }
  EXPECT_GT(accepted, rounds.done() / 50);  // damage to the tokens alone is none to the header
  EXPECT_LT(accepted, rounds.done() * 9 / 10);
}

TEST(FuzzTokenFiles, every_megatron_index_is_sound_or_refused) {
  fuzz::Mutator mutator("megatron index", kWords);
  fuzz::Rounds rounds(20'000);
  const std::vector<std::string> seeds = {fixture("megatron_uint16.idx"), fixture("megatron_int32.idx"),
                                          make_megatron_index(TokenType::Int64, {1, 2, 3}),
                                          make_megatron_index(TokenType::UInt8, {})};
  int accepted = 0;
  while (rounds.next() && !::testing::Test::HasFailure()) {
    const std::vector<uint8_t> bytes = exact(mutator.mutated(seeds[mutator.below(seeds.size())]));
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()));
    const StatusOr<MegatronIndex> index = MegatronIndex::read(bytes);
    if (!index.ok()) {
      expect_a_readable_refusal(index.status());
      continue;
    }
    ++accepted;
    EXPECT_GE(index->tokens(), 0);
    int64_t before = -1;
    for (int64_t at = 0; at < index->tokens() && before < index->tokens(); ++at) {
      at = index->next_document(at);
      ASSERT_GT(at, before);
      ASSERT_LE(at, index->tokens());
      before = at;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, rounds.done() * 9 / 10);
}

TEST(FuzzTokenFiles, every_pair_of_files_opens_and_reads_within_its_bounds) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / ("penstock_fuzz_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  fuzz::Mutator mutator("token files", kWords);
  fuzz::Rounds rounds(1000);
  while (rounds.next() && !::testing::Test::HasFailure()) {
    SCOPED_TRACE("seed " + std::to_string(mutator.seed()));
    for (const char* name : {"megatron_uint16.idx", "megatron_uint16.bin", "int32.npy"}) {
      const std::string bytes = fixture(name);
      std::ofstream(folder / name, std::ios::binary) << (mutator.one_in(2) ? mutator.mutated(bytes) : bytes);
    }
    for (const char* name : {"megatron_uint16.bin", "int32.npy"}) {
      const StatusOr<TokenFile> file = TokenFile::open(folder / name, {});
      if (!file.ok()) {
        expect_a_readable_refusal(file.status());
        continue;
      }
      std::vector<int32_t> tokens(static_cast<size_t>(file->tokens()));
      const Status read = file->read(0, tokens, 1000);
      if (!read.ok()) {
        expect_a_readable_refusal(read);
        continue;
      }
      for (const int32_t token : tokens) EXPECT_TRUE(token >= 0 && token < 1000);
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace penstock
