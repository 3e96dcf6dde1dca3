// XXH3-128 of bytes: tells damaged, exchanged and changed data from what was written. Not against forgery.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace penstock {

using Digest = std::array<uint8_t, 16>;  // most significant byte first

// Of bytes that come in pieces: where they are cut does not matter.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(Digester&&) noexcept;
  void add(std::span<const std::byte> bytes);
  void add(std::span<const float> values);  // as they lie in memory
  Digest finish();                          // and starts anew

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest digest_of(std::span<const std::byte> bytes);
Digest digest_of(std::string_view text);

// Of 32 lower-case hexadecimal digits, as hex() of base/text.h writes them; nothing for any other text.
std::optional<Digest> parse_digest(std::string_view text);

}  // namespace penstock
