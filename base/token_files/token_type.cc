#include "base/token_files/token_type.h"

#include <array>

namespace penstock {
namespace {

constexpr std::array kTypes = {TokenType::UInt8,  TokenType::Int8,  TokenType::UInt16, TokenType::Int16,
                               TokenType::UInt32, TokenType::Int32, TokenType::Int64};

}  // namespace

int64_t bytes_of(TokenType type) {
  switch (type) {
    case TokenType::UInt8:
    case TokenType::Int8:
      return 1;
    case TokenType::UInt16:
    case TokenType::Int16:
      return 2;
    case TokenType::UInt32:
    case TokenType::Int32:
      return 4;
    case TokenType::Int64:
      return 8;
  }
  return 0;
}

std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::UInt8:
      return "uint8";
    case TokenType::Int8:
      return "int8";
    case TokenType::UInt16:
      return "uint16";
    case TokenType::Int16:
      return "int16";
    case TokenType::UInt32:
      return "uint32";
    case TokenType::Int32:
      return "int32";
    case TokenType::Int64:
      return "int64";
  }
  return "?";
}

StatusOr<TokenType> token_type_named(std::string_view name) {
  for (const TokenType type : kTypes) {
    if (name_of(type) == name) return type;
  }
  return invalid_argument("token type: expected an integer type as uint16, found {}", name);
}

}  // namespace penstock
