#include "base/token_files/megatron_index.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/check.h"

namespace penstock {
namespace {

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr size_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;

// Nothing in the file is aligned.
template <typename Number>
Number load(const uint8_t* from) {
  Number value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename Number>
void store(std::string& text, Number value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

struct Code {
  TokenType type;
  uint8_t code;
};
constexpr Code kCodes[] = {{TokenType::UInt8, 1}, {TokenType::Int8, 2},  {TokenType::Int16, 3},
                           {TokenType::Int32, 4}, {TokenType::Int64, 5}, {TokenType::UInt16, 8}};

StatusOr<TokenType> type_of(uint8_t code) {
  for (const Code& known : kCodes) {
    if (known.code == code) return known.type;
  }
  return invalid_argument(
      "expected a Megatron index of an integer type (code 1 to 5, or 8 for uint16), found code {}", code);
}

}  // namespace

StatusOr<MegatronIndex> MegatronIndex::read(std::span<const uint8_t> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.starts_with(kMagic)) {
    return invalid_argument("expected a Megatron index, found a file that does not begin with MMIDIDX");
  }
  if (file.size() < kHeaderBytes) {
    return data_loss("expected a Megatron index of at least {} bytes, found {}", kHeaderBytes, file.size());
  }
  const auto version = load<uint64_t>(&file[9]);
  if (version != 1) return invalid_argument("expected a Megatron index of version 1, found {}", version);

  MegatronIndex index;
  PENSTOCK_ASSIGN_OR_RETURN(index.type_, type_of(file[17]));
  const auto sequences = load<uint64_t>(&file[18]);
  const auto entries = load<uint64_t>(&file[26]);
  const size_t left = file.size() - kHeaderBytes;
  if (sequences > left / 12 || entries > (left - 12 * sequences) / 8) {
    return data_loss("expected {} sequences and {} document indices, found only {} bytes for them", sequences,
                     entries, left);
  }
  const size_t behind = left - 12 * sequences - 8 * entries;
  if (behind != 0 && behind != sequences) {
    return data_loss("expected an index of {} bytes, found {}", file.size() - behind, file.size());
  }
  index.sequences_ = static_cast<int64_t>(sequences);
  index.entries_ = static_cast<int64_t>(entries);
  index.lengths_ = file.data() + kHeaderBytes;
  index.pointers_ = index.lengths_ + 4 * sequences;
  index.documents_ = index.pointers_ + 8 * sequences;
  PENSTOCK_RETURN_IF_ERROR(index.check_sequences());
  PENSTOCK_RETURN_IF_ERROR(index.check_documents());
  return index;
}

int64_t MegatronIndex::length(int64_t sequence) const {
  return load<int32_t>(lengths_ + 4 * sequence);
}

int64_t MegatronIndex::pointer(int64_t sequence) const {
  return load<int64_t>(pointers_ + 8 * sequence);
}

int64_t MegatronIndex::document_index(int64_t entry) const {
  return load<int64_t>(documents_ + 8 * entry);
}

Status MegatronIndex::check_sequences() {
  for (int64_t i = 0; i < sequences_; ++i) {
    if (length(i) < 0) return data_loss("sequence {}: expected a length, found {}", i, length(i));
    const int64_t expected = tokens_ * bytes_of(type_);
    if (pointer(i) != expected) {
      return data_loss("sequence {}: expected to begin at byte {}, behind the one before, found {}", i,
                       expected, pointer(i));
    }
    tokens_ += length(i);
  }
  return ok_status();
}

Status MegatronIndex::check_documents() const {
  int64_t before = 0;
  for (int64_t i = 0; i < entries_; ++i) {
    const int64_t sequence = document_index(i);
    if (sequence < before || sequence > sequences_) {
      return data_loss("document index {}: expected a sequence from {} to {}, found {}", i, before,
                       sequences_, sequence);
    }
    before = sequence;
  }
  return ok_status();
}

int64_t MegatronIndex::first_token(int64_t entry) const {
  const int64_t sequence = document_index(entry);
  return sequence == sequences_ ? tokens_ : pointer(sequence) / bytes_of(type_);
}

int64_t MegatronIndex::documents() const {
  return entries_ - (entries_ > 0 && document_index(entries_ - 1) == sequences_ ? 1 : 0);
}

int64_t MegatronIndex::next_document(int64_t token) const {
  int64_t low = 0;
  int64_t high = entries_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (first_token(middle) < token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == entries_ ? tokens_ : first_token(low);
}

std::string make_megatron_index(TokenType type, const std::vector<int32_t>& document_lengths) {
  const auto wanted = [&](const Code& code) { return code.type == type; };
  const auto* const code = std::find_if(std::begin(kCodes), std::end(kCodes), wanted);
  PENSTOCK_CHECK(code != std::end(kCodes), "{} in a Megatron file", name_of(type));
  const auto documents = static_cast<int64_t>(document_lengths.size());
  std::string index(kMagic);
  store<uint64_t>(index, 1);
  store<uint8_t>(index, code->code);
  store<int64_t>(index, documents);
  store<int64_t>(index, documents + 1);
  for (const int32_t length : document_lengths) store(index, length);
  int64_t pointer = 0;
  for (const int32_t length : document_lengths) {
    store(index, pointer);
    pointer += length * bytes_of(type);
  }
  for (int64_t i = 0; i <= documents; ++i) store(index, i);
  return index;
}

}  // namespace penstock
