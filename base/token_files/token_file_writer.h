// Writes tokens as .npy, raw .bin or Megatron .bin and .idx, seen under their names whole or not at all.
//
// The same tokens make the same bytes. Memory: a buffer of 1 MiB, and for Megatron 4 bytes a document until
// commit, 24 then. Thread: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/status.h"
#include "base/token_files/token_file.h"

namespace penstock {

class TokenFileWriter {
 public:
  struct Options {
    TokenFormat format = TokenFormat::Npy;  // not text
    int64_t vocabulary = 0;                 // every token is below it; at most 2^31
  };
  // `path` ends with .npy, for the other formats with .bin. The tokens are stored as uint16 where the
  // vocabulary lets them, else as uint32, in Megatron's files int32.
  // InvalidArgument: a path with another ending. FailedPrecondition: a raw .bin beside an .idx of its name,
  // which would make it a Megatron file. Others: those of AtomicFile.
  static StatusOr<TokenFileWriter> create(const std::string& path, const Options& options);

  TokenType type() const { return type_; }
  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return documents_; }

  // InvalidArgument: a token outside the vocabulary. Others: those of AtomicFile.
  Status write(std::span<const int32_t> tokens);
  // OutOfRange: more than 2^31 - 1 tokens in a document of a Megatron file.
  Status end_document();
  Status commit();  // call once, last; what was written behind the last end_document is a document too

 private:
  TokenFileWriter(AtomicFile file, const Options& options, TokenType type)
      : file_(std::move(file)), options_(options), type_(type) {}
  Status flush();

  AtomicFile file_;
  std::optional<AtomicFile> index_;  // of Megatron
  Options options_;
  TokenType type_;
  int64_t tokens_ = 0;
  int64_t documents_ = 0;
  int64_t document_tokens_ = 0;  // of the document being written
  std::vector<int32_t> lengths_;
  std::string buffer_;
};

}  // namespace penstock
