#include "client/prepare/text_pieces.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace penstock::client {
namespace {

// Where a piece of at most `longest` bytes of the document ends.
size_t place_of_cut(std::string_view document, size_t longest) {
  const std::string_view most = document.substr(0, longest);
  for (const char behind : {'\n', ' '}) {
    const size_t found = most.rfind(behind);
    if (found != std::string_view::npos) return found + 1;
  }
  return std::max<size_t>(utf8_cut(document, longest).size(), 1);
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

StatusOr<TextPieces> TextPieces::open(const std::vector<std::string>& paths, const Options& options) {
  TextPieces pieces(options);
  for (const std::string& path : paths) {
    PENSTOCK_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    pieces.bytes_ += file.size();
    pieces.files_.push_back(std::move(file));
  }
  return pieces;
}

// The next piece of what is left of a file; `passed`: bytes of the file that it takes, its newline with it.
TextPieces::Piece TextPieces::take(std::string_view rest, size_t& passed) const {
  std::string_view document = rest;
  size_t newline = std::string_view::npos;
  if (options_.document == Document::Line) {
    // A line that is longer than a piece is searched no further: the cut comes first.
    newline = rest.substr(0, options_.longest + 1).find('\n');
    if (newline != std::string_view::npos) document = rest.substr(0, newline);
  }
  if (document.size() <= options_.longest) {
    passed = document.size() + (newline == std::string_view::npos ? 0 : 1);
    return {document, true};
  }
  passed = place_of_cut(document, options_.longest);
  return {document.substr(0, passed), false};
}

StatusOr<TextPieces::Piece> TextPieces::next() {
  while (file_ < files_.size()) {
    const MappedFile& file = files_[file_];
    if (offset_ == file.bytes().size()) {
      ++file_;
      offset_ = 0;
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(file.check_unchanged());
    size_t passed = 0;
    const Piece piece = take(text_of(file).substr(offset_), passed);
    if (const size_t valid = utf8_valid_prefix(piece.text); valid != piece.text.size()) {
      return invalid_argument("{}: byte {} is not UTF-8; convert the file, with iconv for one", file.path(),
                              offset_ + valid);
    }
    offset_ += passed;
    bytes_done_ += static_cast<int64_t>(passed);
    if (!piece.text.empty()) return piece;
  }
  return Piece{};
}

}  // namespace penstock::client
