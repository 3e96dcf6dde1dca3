// Text as tokens and back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace penstock {

// Thread: any; encode and decode change nothing.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual int64_t vocabulary() const = 0;
  // The token that stands behind a document (</s>); -1 where the vocabulary has none.
  virtual int32_t end_of_document() const = 0;

  // `text` is UTF-8; what is not becomes a replacement character.
  virtual StatusOr<std::vector<int32_t>> encode(std::string_view text) const = 0;
  virtual StatusOr<std::string> decode(std::span<const int32_t> tokens) const = 0;
};

// A SentencePiece model, as its trainer writes it and as Hugging Face directories hold it (tokenizer.model).
// InvalidArgument: `model` is none.
StatusOr<std::unique_ptr<Tokenizer>> load_sentencepiece(std::string_view model);

struct SentencePieceTraining {
  int64_t vocabulary = 0;
  std::string kind = "unigram";  // unigram | bpe
  // Lines that are learnt from; of more, so many are drawn with a fixed seed.
  int64_t most_lines = 10'000'000;
  // Writes the next line of the text, of at most kLongestTrainingLine bytes of UTF-8; false: there is none.
  std::function<StatusOr<bool>(std::string& line)> next_line;
};
constexpr size_t kLongestTrainingLine = 4096;

// Trains a model, the same bytes from the same lines on every machine: what it encodes it decodes to the same
// text, to the last space, and a character that it has not learnt becomes its bytes. <unk> is 0, <s> 1, </s> 2.
// Memory: that of the lines, several times.
// InvalidArgument: a vocabulary that the text cannot fill or that is too small for its characters; says what
// would do. Errors of next_line.
StatusOr<std::string> train_sentencepiece(const SentencePieceTraining& training);

}  // namespace penstock
