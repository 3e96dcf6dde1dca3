// What `penstock data prepare` does: trains a tokenizer from text, makes files of tokens of text.
//
// The same text gives the same bytes. Results appear under their names whole or not at all.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/token_files/token_file.h"
#include "client/prepare/text_pieces.h"

namespace penstock::client {

using Progress = std::function<void(int64_t bytes_done, int64_t bytes)>;

struct TrainTokenizerOptions {
  std::vector<std::string> texts;
  std::string model;  // file to write
  int64_t vocabulary = 0;
  std::string kind = "unigram";
  int64_t most_lines = 10'000'000;
};
struct TrainedTokenizer {
  int64_t vocabulary = 0;
  int32_t end_of_document = -1;
  int64_t bytes_of_text = 0;
};
// Errors: those of TextPieces, train_sentencepiece and AtomicFile.
StatusOr<TrainedTokenizer> train_tokenizer(const TrainTokenizerOptions& options, const Progress& progress);

struct TokenizeOptions {
  std::vector<std::string> texts;
  std::string model;                       // SentencePiece, to read
  std::string target;                      // file of tokens to write
  std::optional<TokenFormat> format;       // nothing: by the target's name, raw for .bin
  Document document = Document::File;      // behind each stands a token
  std::optional<int32_t> end_of_document;  // -1: none; nothing: the tokenizer's
};
struct Tokenized {
  TokenFormat format = TokenFormat::Npy;
  TokenType type = TokenType::UInt16;
  int64_t vocabulary = 0;
  int32_t end_of_document = -1;
  int64_t tokens = 0;
  int64_t documents = 0;
  int64_t bytes_of_text = 0;
};
// A document longer than a piece (16 KiB) is encoded piece by piece: SentencePiece adds up scores of a whole text
// in float32, and over a megabyte near ties come out wrong. A tokenizer that puts a space in front of a text puts
// one in front of each piece.
// InvalidArgument too: a model without end of document, or one given that is outside its vocabulary.
StatusOr<Tokenized> tokenize(const TokenizeOptions& options, const Progress& progress);

}  // namespace penstock::client
