#include "base/token_files/token_file.h"

#include <cstring>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "base/token_files/npy_header.h"

namespace penstock {
namespace {

std::string without(const std::string& path, std::string_view ending) {
  return path.ends_with(ending) ? path.substr(0, path.size() - ending.size()) : path;
}

std::string megatron_stem(const std::string& path) {
  return path.ends_with(".idx") ? without(path, ".idx") : without(path, ".bin");
}

bool exists(const std::string& path) {
  std::error_code failure;
  return std::filesystem::exists(path, failure);
}

TokenFormat format_by_name(const std::string& path) {
  if (path.ends_with(".npy")) return TokenFormat::Npy;
  if (path.ends_with(".idx")) return TokenFormat::Megatron;
  if (!path.ends_with(".bin")) return TokenFormat::Text;
  return exists(megatron_stem(path) + ".idx") ? TokenFormat::Megatron : TokenFormat::Bin;
}

}  // namespace

std::string_view name_of(TokenFormat format) {
  switch (format) {
    case TokenFormat::Text:
      return "text";
    case TokenFormat::Npy:
      return "npy";
    case TokenFormat::Bin:
      return "bin";
    case TokenFormat::Megatron:
      return "megatron";
  }
  return "?";
}

StatusOr<TokenFile> TokenFile::open(const std::string& path, const TokenFileOptions& options) {
  return open_as(options.format.value_or(format_by_name(path)), path, options.bin_type);
}

StatusOr<TokenFile> TokenFile::open_as(TokenFormat format, const std::string& path, TokenType bin_type) {
  if (format == TokenFormat::Megatron) return open_megatron(path);
  PENSTOCK_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
  TokenFile file(format, std::move(mapped));
  if (format == TokenFormat::Npy) {
    const StatusOr<NpyHeader> header = read_npy_header(file.tokens_file_.bytes());
    if (!header.ok()) return with_context(header.status(), path);
    file.type_ = header->type;
    file.tokens_ = header->tokens;
    file.begin_ = header->bytes;
    return file;
  }
  PENSTOCK_RETURN_IF_ERROR(file.take_plain(format == TokenFormat::Bin ? bin_type : TokenType::UInt8));
  return file;
}

Status TokenFile::take_plain(TokenType type) {
  const int64_t size = tokens_file_.size();
  if (size % bytes_of(type) != 0) {
    return data_loss("{}: expected whole tokens of {} bytes ({}), found {} bytes", path(), bytes_of(type),
                     name_of(type), size);
  }
  type_ = type;
  tokens_ = size / bytes_of(type);
  return ok_status();
}

StatusOr<TokenFile> TokenFile::open_megatron(const std::string& path) {
  const std::string stem = megatron_stem(path);
  PENSTOCK_ASSIGN_OR_RETURN(MappedFile index_file, MappedFile::open(stem + ".idx"));
  PENSTOCK_ASSIGN_OR_RETURN(MappedFile tokens_file, MappedFile::open(stem + ".bin"));
  const StatusOr<MegatronIndex> index = MegatronIndex::read(index_file.bytes());
  if (!index.ok()) return with_context(index.status(), index_file.path());

  TokenFile file(TokenFormat::Megatron, std::move(tokens_file));
  PENSTOCK_RETURN_IF_ERROR(file.take_plain(index->type()));
  if (file.tokens_ != index->tokens()) {
    return data_loss("{}: expected the {} tokens ({}) that {} lists, found {}", file.path(), index->tokens(),
                     name_of(index->type()), index_file.path(), file.tokens_);
  }
  file.index_file_ = std::move(index_file);
  file.index_ = *index;
  return file;
}

std::optional<int64_t> TokenFile::documents() const {
  return index_ ? std::optional<int64_t>(index_->documents()) : std::nullopt;
}

int64_t TokenFile::next_document(int64_t token) const {
  return index_ ? index_->next_document(token) : tokens_;
}

Status TokenFile::read(int64_t first, std::span<int32_t> target, int64_t vocabulary) const {
  PENSTOCK_CHECK(first >= 0 && first + static_cast<int64_t>(target.size()) <= tokens_,
                 "tokens {} to {} of {}", first, first + static_cast<int64_t>(target.size()), tokens_);
  PENSTOCK_RETURN_IF_ERROR(tokens_file_.check_unchanged());
  if (index_file_) PENSTOCK_RETURN_IF_ERROR(index_file_->check_unchanged());
  switch (type_) {
    case TokenType::UInt8:
      return decode<uint8_t>(first, target, vocabulary);
    case TokenType::Int8:
      return decode<int8_t>(first, target, vocabulary);
    case TokenType::UInt16:
      return decode<uint16_t>(first, target, vocabulary);
    case TokenType::Int16:
      return decode<int16_t>(first, target, vocabulary);
    case TokenType::UInt32:
      return decode<uint32_t>(first, target, vocabulary);
    case TokenType::Int32:
      return decode<int32_t>(first, target, vocabulary);
    case TokenType::Int64:
      return decode<int64_t>(first, target, vocabulary);
  }
  return ok_status();
}

// Negative tokens are huge ones as unsigned: one comparison tells both.
template <typename Stored>
Status TokenFile::decode(int64_t first, std::span<int32_t> target, int64_t vocabulary) const {
  const uint8_t* from = tokens_file_.bytes().data() + byte_of(first);
  const auto limit = static_cast<uint64_t>(vocabulary);
  for (size_t i = 0; i < target.size(); ++i) {
    Stored value;
    std::memcpy(&value, from + i * sizeof(Stored), sizeof(Stored));
    const auto wide = static_cast<int64_t>(value);
    if (static_cast<uint64_t>(wide) >= limit) {
      return outside(first + static_cast<int64_t>(i), wide, vocabulary);
    }
    target[i] = static_cast<int32_t>(wide);
  }
  return ok_status();
}

Status TokenFile::outside(int64_t token, int64_t value, int64_t vocabulary) const {
  return invalid_argument("{} holds token {} at place {} (byte {}), the vocabulary ends at {}", path(), value,
                          token, byte_of(token), vocabulary - 1);
}

}  // namespace penstock
