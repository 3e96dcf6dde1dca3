#include "base/token_files/token_file_writer.h"

#include <filesystem>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/token_files/megatron_index.h"
#include "base/token_files/npy_header.h"

namespace penstock {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

TokenType type_for(const TokenFileWriter::Options& options) {
  if (options.vocabulary <= int64_t{1} << 16) return TokenType::UInt16;
  return options.format == TokenFormat::Megatron ? TokenType::Int32 : TokenType::UInt32;
}

// uint32 and int32 are the same bytes: a token is never negative.
void store(std::string& buffer, int32_t token, TokenType type) {
  if (type == TokenType::UInt16) {
    const auto narrow = static_cast<uint16_t>(token);
    buffer.append(reinterpret_cast<const char*>(&narrow), sizeof(narrow));
  } else {
    buffer.append(reinterpret_cast<const char*>(&token), sizeof(token));
  }
}

std::string index_path(const std::string& path) {
  return std::filesystem::path(path).replace_extension(".idx").string();
}

Status check_name(const std::string& path, TokenFormat format) {
  const char* ending = format == TokenFormat::Npy ? ".npy" : ".bin";
  if (!path.ends_with(ending)) {
    return invalid_argument("{}: expected a name that ends with {}, which format {} has", path, ending,
                            name_of(format));
  }
  std::error_code failure;
  if (format != TokenFormat::Bin || !std::filesystem::exists(index_path(path), failure)) return ok_status();
  return failed_precondition("{}: {} stands beside it and would make it a Megatron file; remove it first",
                             path, index_path(path));
}

}  // namespace

StatusOr<TokenFileWriter> TokenFileWriter::create(const std::string& path, const Options& options) {
  PENSTOCK_CHECK(options.format != TokenFormat::Text);
  PENSTOCK_RETURN_IF_ERROR(check_name(path, options.format));
  PENSTOCK_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  TokenFileWriter writer(std::move(file), options, type_for(options));
  if (options.format == TokenFormat::Megatron) {
    PENSTOCK_ASSIGN_OR_RETURN(AtomicFile index, AtomicFile::create(index_path(path)));
    writer.index_.emplace(std::move(index));
  }
  if (options.format == TokenFormat::Npy) writer.buffer_ = make_npy_header(writer.type_, 0);
  return writer;
}

Status TokenFileWriter::write(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= options_.vocabulary) {
      return invalid_argument("{}: token {} at place {}: expected one from 0 to {}", file_.path(), token,
                              tokens_, options_.vocabulary - 1);
    }
    store(buffer_, token, type_);
    ++tokens_;
    ++document_tokens_;
    if (buffer_.size() >= kBufferBytes) PENSTOCK_RETURN_IF_ERROR(flush());
  }
  return ok_status();
}

Status TokenFileWriter::flush() {
  const Status written = file_.write(buffer_);
  buffer_.clear();
  return written;
}

Status TokenFileWriter::end_document() {
  if (index_) {
    if (document_tokens_ > std::numeric_limits<int32_t>::max()) {
      return out_of_range("{}: document {} of {} tokens: a Megatron file holds at most {} in one",
                          file_.path(), documents_, document_tokens_, std::numeric_limits<int32_t>::max());
    }
    lengths_.push_back(static_cast<int32_t>(document_tokens_));
  }
  document_tokens_ = 0;
  ++documents_;
  return ok_status();
}

// The index appears before the tokens: an index alone is refused, tokens alone would pass for a raw file.
Status TokenFileWriter::commit() {
  if (document_tokens_ > 0) PENSTOCK_RETURN_IF_ERROR(end_document());
  PENSTOCK_RETURN_IF_ERROR(flush());
  if (options_.format == TokenFormat::Npy) {
    PENSTOCK_RETURN_IF_ERROR(file_.overwrite(0, make_npy_header(type_, tokens_)));
  }
  if (index_) {
    PENSTOCK_RETURN_IF_ERROR(index_->write(make_megatron_index(type_, lengths_)));
    PENSTOCK_RETURN_IF_ERROR(index_->commit());
  }
  return file_.commit();
}

}  // namespace penstock
