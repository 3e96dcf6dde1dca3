// The tokens of several files, one after another, as one long row.
//
// Files are named by paths or patterns (*, ?, [..]); a pattern's files come in byte order of their names, a
// file that is named twice counts once. All are mapped: what is held here grows with their number, not with
// their size. Limits: kMostFiles files. Thread: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/token_files/token_file.h"
#include "plan/spec/job_spec.h"

namespace penstock::worker {

class TokenStream {
 public:
  static constexpr size_t kMostFiles =
      16384;  // a process may hold 65,530 mappings, a Megatron file takes two

  // Reads `data`'s format and types. NotFound: a pattern without a match. ResourceExhausted: too many files.
  // InvalidArgument: text beside files of tokens. Others: those of TokenFile. Each names the file.
  static StatusOr<TokenStream> open(std::span<const std::string> sources, const plan::DataSpec& data);

  int64_t tokens() const { return tokens_; }
  const std::vector<TokenFile>& files() const { return files_; }
  std::vector<std::string> paths() const;

  // Where a token stands: its file, and its place there.
  struct Place {
    const TokenFile* file = nullptr;
    int64_t token = 0;
  };
  Place place(int64_t token) const;

  // Fills `target` with the tokens from `first` on, across files where it must. Errors: those of
  // TokenFile::read.
  Status read(int64_t first, std::span<int32_t> target, int64_t vocabulary) const;

  // The first token at or behind `token` that a Megatron index says begins a document; tokens() when none.
  int64_t next_document(int64_t token) const;

 private:
  size_t file_at(int64_t token) const;
  Status check_kinds() const;

  std::vector<TokenFile> files_;
  std::vector<int64_t> begins_;  // beside files_: the first token of each
  int64_t tokens_ = 0;
};

}  // namespace penstock::worker
