// A file of tokens, read by memory map whatever its format.
//
// text      every byte is a token
// npy       numpy's array file: one row of uint16, uint32, int32 or int64
// bin       nothing but tokens, uint16 or uint32
// megatron  a .bin of tokens and beside it an .idx of documents
//
// Opening reads headers and indices, never the tokens: they may be terabytes. Tokens are checked when they
// are read.
//
// Thread: any, once it is open.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/status.h"
#include "base/token_files/megatron_index.h"
#include "base/token_files/token_type.h"

namespace penstock {

enum class TokenFormat : uint8_t { Text, Npy, Bin, Megatron };
std::string_view name_of(TokenFormat format);

struct TokenFileOptions {
  // Nothing: by the file's name. .npy; .bin with an .idx of its name beside it: Megatron's; .bin and .idx;
  // everything else is text.
  std::optional<TokenFormat> format;
  TokenType bin_type = TokenType::UInt16;  // of a .bin without an index
};

class TokenFile {
 public:
  // A Megatron file may be named by its .bin, by its .idx or without an ending.
  // NotFound, FailedPrecondition, ResourceExhausted: those of MappedFile. InvalidArgument: another format or
  // type than expected. DataLoss: a file whose size, header or index contradict each other. Each names the
  // file.
  static StatusOr<TokenFile> open(const std::string& path, const TokenFileOptions& options);

  const std::string& path() const { return tokens_file_.path(); }
  TokenFormat format() const { return format_; }
  TokenType type() const { return type_; }
  int64_t tokens() const { return tokens_; }
  int64_t bytes() const { return tokens_file_.size() + (index_file_ ? index_file_->size() : 0); }
  // Where a token stands in the file that path() names.
  int64_t byte_of(int64_t token) const { return begin_ + token * bytes_of(type_); }
  // Documents that a Megatron index lists; nothing for other files.
  std::optional<int64_t> documents() const;

  // Writes the tokens from `first` on, target.size() of them. InvalidArgument: a token outside
  // [0, vocabulary), with its value, its place in tokens and in bytes. DataLoss: the file has changed since
  // it was opened. first + target.size() <= tokens().
  Status read(int64_t first, std::span<int32_t> target, int64_t vocabulary) const;

  // The first token at or behind `token` that the index says begins a document; tokens() when none does.
  int64_t next_document(int64_t token) const;

 private:
  TokenFile(TokenFormat format, MappedFile file) : format_(format), tokens_file_(std::move(file)) {}
  static StatusOr<TokenFile> open_as(TokenFormat format, const std::string& path, TokenType bin_type);
  static StatusOr<TokenFile> open_megatron(const std::string& path);
  Status take_plain(TokenType type);
  Status outside(int64_t token, int64_t value, int64_t vocabulary) const;
  template <typename Stored>
  Status decode(int64_t first, std::span<int32_t> target, int64_t vocabulary) const;

  TokenFormat format_;
  TokenType type_ = TokenType::UInt8;
  int64_t tokens_ = 0;
  int64_t begin_ = 0;  // of the first token, in bytes
  MappedFile tokens_file_;
  std::optional<MappedFile> index_file_;
  std::optional<MegatronIndex> index_;  // a view of index_file_
};

}  // namespace penstock
