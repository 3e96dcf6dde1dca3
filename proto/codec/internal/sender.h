// The attempt and rank that most messages of a rank begin with.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "proto/codec/internal/checks.h"
#include "proto/codec/wire.h"

namespace penstock::codec {

inline constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

template <typename Message>
AttemptKey decode_attempt(const Message& message, Checks& checks) {
  StatusOr<AttemptKey> key = from_proto(message.attempt());
  checks.nested("attempt", key.status());
  return key.ok() ? *std::move(key) : AttemptKey{};
}

template <typename Message>
RankIndex decode_rank(const Message& message, Checks& checks) {
  return RankIndex(checks.range("rank", message.rank(), 0, kMostRanks - 1));
}

}  // namespace penstock::codec
