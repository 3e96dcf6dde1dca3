// The documents of text files, one piece after another.
//
// A document is a file or a line. A longer one comes in pieces, cut behind a newline where there is one, else
// behind a space, else between two characters. Files are mapped, nothing is copied. Thread: one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"

namespace penstock::client {

enum class Document { File, Line };

class TextPieces {
 public:
  struct Options {
    Document document = Document::File;  // a line is without its newline; empty documents are left out
    size_t longest = 16 << 10;           // of a piece, in bytes; at least 4
  };
  // Errors: those of MappedFile.
  static StatusOr<TextPieces> open(const std::vector<std::string>& paths, const Options& options);

  struct Piece {
    std::string_view text;  // UTF-8, lives as long as this; empty behind the last piece
    bool ends_document = false;
  };
  // DataLoss: a file that has changed. InvalidArgument: text that is not UTF-8. Both name the file, this one
  // the byte too.
  StatusOr<Piece> next();

  int64_t bytes() const { return bytes_; }
  int64_t bytes_done() const { return bytes_done_; }

 private:
  explicit TextPieces(const Options& options) : options_(options) {}
  Piece take(std::string_view rest, size_t& passed) const;

  Options options_;
  std::vector<MappedFile> files_;
  size_t file_ = 0;
  size_t offset_ = 0;  // in that file
  int64_t bytes_ = 0;
  int64_t bytes_done_ = 0;
};

}  // namespace penstock::client
