// Numbers as a person reads them: no blanks inside, about three digits. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace penstock::plan {

// "1.5ms", "350ms", "4.2s", "42s", "3m12s", "2h05m", "3d04h". Negative and not-a-number are "0s".
std::string human_duration(double seconds);

// Binary units: "512B", "1.50KiB", "23.4MiB".
std::string human_bytes(int64_t bytes);

// Decimal units: "950", "12.3k", "4.56M". Below zero keeps its sign.
std::string human_count(double count);

// "1 rank", "2 ranks", "8 microbatches": the noun in its plural where it is not one.
std::string counted(int64_t count, std::string_view noun);

// With so many digits after the point; with an exponent where that would be longer than a column should be.
std::string bounded_decimal(double value, int digits);

}  // namespace penstock::plan
