#include "base/digest/digest.h"

#include <xxhash.h>

#include <algorithm>

#include "base/check.h"

namespace penstock {
namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

Digest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  Digest digest;
  std::copy(std::begin(bytes.digest), std::end(bytes.digest), digest.begin());
  return digest;
}

int value_of_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

struct Digester::State {
  std::unique_ptr<XXH3_state_t, FreeState> hash{XXH3_createState()};
};

Digester::Digester() : state_(std::make_unique<State>()) {
  PENSTOCK_CHECK(state_->hash != nullptr, "no memory for a digest");
  XXH3_128bits_reset(state_->hash.get());
}
Digester::~Digester() = default;
Digester::Digester(Digester&&) noexcept = default;

void Digester::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->hash.get(), bytes.data(), bytes.size());
}

void Digester::add(std::span<const float> values) {
  add(std::as_bytes(values));
}

Digest Digester::finish() {
  const Digest digest = canonical(XXH3_128bits_digest(state_->hash.get()));
  XXH3_128bits_reset(state_->hash.get());
  return digest;
}

Digest digest_of(std::span<const std::byte> bytes) {
  return canonical(XXH3_128bits(bytes.data(), bytes.size()));
}

Digest digest_of(std::string_view text) {
  return digest_of(std::as_bytes(std::span(text.data(), text.size())));
}

std::optional<Digest> parse_digest(std::string_view text) {
  Digest digest;
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (size_t i = 0; i < digest.size(); ++i) {
    const int high = value_of_digit(text[2 * i]);
    const int low = value_of_digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    digest[i] = static_cast<uint8_t>(16 * high + low);
  }
  return digest;
}

}  // namespace penstock
