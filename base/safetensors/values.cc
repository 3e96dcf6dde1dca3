#include "base/safetensors/values.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace penstock {
namespace {

template <typename Widen>
void widen_halves(std::span<const std::byte> bytes, std::span<float> values, Widen widened) {
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + 2 * i, 2);
    values[i] = widened(bits);
  }
}

}  // namespace

bool is_float_dtype(const std::string& dtype) {
  return dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

float widened_half(uint16_t bits) {
  const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fu;
  const uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: fraction x 2^-24, which float32 holds exactly
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  const uint32_t widened = exponent == 0x1f ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
}

void widen(const std::string& dtype, std::span<const std::byte> bytes, std::span<float> values) {
  PENSTOCK_CHECK(is_float_dtype(dtype), "{}", dtype);
  PENSTOCK_CHECK_EQ(bytes.size(), values.size() * (dtype == "F32" ? 4 : 2));
  if (values.empty()) return;
  if (dtype == "F32") {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else if (dtype == "BF16") {
    widen_halves(bytes, values, [](uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); });
  } else {
    widen_halves(bytes, values, widened_half);
  }
}

uint16_t narrowed_to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

size_t first_not_finite(std::span<const float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return values.size();
}

}  // namespace penstock
