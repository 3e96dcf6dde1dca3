// The header of a .npy file that holds one row of tokens, as numpy's format specification says it
// (numpy.lib.format, versions 1.0, 2.0 and 3.0): magic, version, length, and a Python dictionary of descr,
// fortran_order and shape.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "base/token_files/token_type.h"

namespace penstock {

struct NpyHeader {
  TokenType type = TokenType::UInt16;
  int64_t tokens = 0;
  int64_t bytes = 0;  // of the header: where the tokens begin
};

// Reads the header at the front of `file`, the whole file's bytes, and checks the file's size against it.
// InvalidArgument: no .npy file, or one of another version, shape or type than a row of little-endian uint16,
// uint32, int32 or int64; DataLoss: cut, or longer than its header says. Each says what was found.
StatusOr<NpyHeader> read_npy_header(std::span<const uint8_t> file);

// A version 1.0 header of kNpyHeaderBytes for so many tokens, whatever their number: it can be written last.
constexpr int64_t kNpyHeaderBytes = 128;
std::string make_npy_header(TokenType type, int64_t tokens);

}  // namespace penstock
