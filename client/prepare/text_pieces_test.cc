#include "client/prepare/text_pieces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace penstock::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TextPiecesTest : public ::testing::Test {
 protected:
  TextPiecesTest()
      : folder_(std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_pieces_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~TextPiecesTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& text) {
    std::string path = folder_ / fmt::format("{}.txt", files_++);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // Pieces with '|' behind those that end a document.
  static std::vector<std::string> all(TextPieces pieces) {
    std::vector<std::string> texts;
    while (true) {
      const StatusOr<TextPieces::Piece> piece = pieces.next();
      EXPECT_TRUE(piece.ok()) << piece.status();
      if (!piece.ok() || piece->text.empty()) break;
      texts.push_back(std::string(piece->text) + (piece->ends_document ? "|" : ""));
    }
    EXPECT_EQ(pieces.bytes_done(), pieces.bytes());
    return texts;
  }
  static std::vector<std::string> all(const std::vector<std::string>& paths,
                                      const TextPieces::Options& options) {
    return all(TextPieces::open(paths, options).value());
  }

  std::filesystem::path folder_;
  int files_ = 0;
};

TEST_F(TextPiecesTest, a_file_is_one_document) {
  EXPECT_THAT(all({write("one\ntwo\n"), write(""), write("three")}, {}),
              ElementsAre("one\ntwo\n|", "three|"));
  EXPECT_THAT(all({write("")}, {}), IsEmpty());
}

TEST_F(TextPiecesTest, a_line_is_one_document_without_its_newline) {
  EXPECT_THAT(all({write("one\n\ntwo\n"), write("three"), write("\n")}, {.document = Document::Line}),
              ElementsAre("one|", "two|", "three|"));
}

TEST_F(TextPiecesTest, a_long_document_is_cut_at_newlines_then_spaces_then_characters) {
  EXPECT_THAT(all({write("ab\ncd ef\nghijklmno p")}, {.longest = 8}),
              ElementsAre("ab\n", "cd ef\n", "ghijklmn", "o p|"));
  EXPECT_THAT(all({write("äääää")}, {.longest = 5}), ElementsAre("ää", "ää", "ä|"));
  EXPECT_THAT(all({write("long line of words\nnext\n")}, {.document = Document::Line, .longest = 8}),
              ElementsAre("long ", "line of ", "words|", "next|"));
  EXPECT_THAT(all({write("12345678\n9")}, {.document = Document::Line, .longest = 8}),
              ElementsAre("12345678|", "9|"));
}

TEST_F(TextPiecesTest, text_that_is_not_utf8_is_refused_with_its_byte) {
  const std::string path = write("fine\nd\xe9j\xe0");
  TextPieces pieces = TextPieces::open({path}, {.document = Document::Line}).value();
  EXPECT_EQ(pieces.next()->text, "fine");
  const Status status = pieces.next().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(message(status), AllOf(HasSubstr(path), HasSubstr("byte 6 is not UTF-8")));
}

TEST_F(TextPiecesTest, binary_data_ends_and_does_not_loop) {
  // A cut between characters must go on where there are none.
  TextPieces pieces = TextPieces::open({write(std::string(100, '\x80'))}, {.longest = 8}).value();
  EXPECT_EQ(pieces.next().status().code(), StatusCode::kInvalidArgument);
}

TEST_F(TextPiecesTest, a_file_that_is_cut_is_an_error) {
  const std::string path = write("one\ntwo\n");
  TextPieces pieces = TextPieces::open({path}, {.document = Document::Line}).value();
  ASSERT_TRUE(pieces.next().ok());
  std::filesystem::resize_file(path, 4);
  EXPECT_EQ(pieces.next().status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace penstock::client
