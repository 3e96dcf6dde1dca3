// Elements of stored tensors as float32, and back. Input and output may lie at any address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace penstock {

// What a float tensor may be stored as: "F32", "BF16", "F16". Others are not read.
bool is_float_dtype(const std::string& dtype);

// Exact: every bfloat16 and every half is a float32. `bytes` holds values.size() elements of `dtype`, a float one.
void widen(const std::string& dtype, std::span<const std::byte> bytes, std::span<float> values);
float widened_half(uint16_t bits);

// To the nearest bfloat16, ties to even; a NaN stays one.
uint16_t narrowed_to_bfloat16(float value);

// Index of the first infinity or NaN, or values.size().
size_t first_not_finite(std::span<const float> values);

}  // namespace penstock
