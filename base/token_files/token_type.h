// How a token is stored: an integer of one to eight bytes, little endian.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace penstock {

enum class TokenType : uint8_t { UInt8, Int8, UInt16, Int16, UInt32, Int32, Int64 };

int64_t bytes_of(TokenType type);
std::string_view name_of(TokenType type);  // as numpy says it: "uint16"
// InvalidArgument for any other name.
StatusOr<TokenType> token_type_named(std::string_view name);

}  // namespace penstock
