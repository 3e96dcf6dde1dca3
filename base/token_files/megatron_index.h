// The .idx file beside a Megatron .bin file: type, and where sequences and documents begin.
//
// Little endian, without padding: "MMIDIDX\0\0", version u64 = 1, type u8, sequences N u64, document indices
// D u64, lengths i32[N] in tokens, pointers i64[N] in bytes, document indices i64[D]: the sequence that each
// document begins with, and N at the end. (megatron/core/datasets/indexed_dataset.py; what multimodal files
// add behind it, a mode a sequence, is passed over.)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/token_files/token_type.h"

namespace penstock {

class MegatronIndex {
 public:
  // Reads the whole of `file`, the bytes of the .idx, once: about 20 bytes a sequence. `file` must outlive
  // the index. The sequences must lie one behind another, as every Megatron writer lays them.
  // InvalidArgument: no such index, another version or a type that holds no tokens. DataLoss: cut, longer
  // than it says, or with lengths, pointers or document indices that contradict each other. Each says what
  // was found and at which sequence.
  static StatusOr<MegatronIndex> read(std::span<const uint8_t> file);

  TokenType type() const { return type_; }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const;  // that begin before the end
  int64_t tokens() const { return tokens_; }

  // The first token at or behind `token` that begins a document; tokens() when none does.
  int64_t next_document(int64_t token) const;

 private:
  MegatronIndex() = default;
  Status check_sequences();
  Status check_documents() const;
  int64_t length(int64_t sequence) const;
  int64_t pointer(int64_t sequence) const;
  int64_t document_index(int64_t entry) const;
  int64_t first_token(int64_t entry) const;  // of the document that begins there

  TokenType type_ = TokenType::UInt16;
  int64_t sequences_ = 0;
  int64_t entries_ = 0;  // document indices
  int64_t tokens_ = 0;
  const uint8_t* lengths_ = nullptr;
  const uint8_t* pointers_ = nullptr;
  const uint8_t* documents_ = nullptr;
};

// The index of documents of so many tokens each, every one of them one sequence.
// `type`: one that Megatron knows, which uint32 is not.
std::string make_megatron_index(TokenType type, const std::vector<int32_t>& document_lengths);

}  // namespace penstock
