#include "base/ieee_math.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace penstock {
namespace {

// Horner's scheme, highest power first in the list.
template <size_t N>
double polynomial(const double (&coefficients)[N], double x) {
  double sum = 0;
  for (const double coefficient : coefficients) sum = sum * x + coefficient;
  return sum;
}

// Taylor's series for |x| <= pi/4: the first term left out is below 1e-19.
double sine_near_zero(double x) {
  constexpr double kTerms[] = {1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
                               1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
  const double x2 = x * x;
  return x + x * (x2 * polynomial(kTerms, x2));
}
double cosine_near_zero(double x) {
  constexpr double kTerms[] = {-1.0 / 6402373705728000,
                               1.0 / 20922789888000,
                               -1.0 / 87178291200,
                               1.0 / 479001600,
                               -1.0 / 3628800,
                               1.0 / 40320,
                               -1.0 / 720,
                               1.0 / 24,
                               -1.0 / 2};
  const double x2 = x * x;
  return 1 + x2 * polynomial(kTerms, x2);
}

// x = quadrant x pi/2 + rest, |rest| <= pi/4. The first two parts of pi/2 have 33 bits: their products with a
// quadrant below 2^20 are exact.
struct Angle {
  double rest;
  int64_t quadrant;
};
Angle reduced(double x) {
  constexpr double kPart1 = 1.57079632673412561417;
  constexpr double kPart2 = 6.07710050630396597660e-11;
  constexpr double kPart3 = 2.02226624879595063154e-21;
  const double quadrant = std::floor(x * 0.63661977236758134308 + 0.5);
  return {((x - quadrant * kPart1) - quadrant * kPart2) - quadrant * kPart3, static_cast<int64_t>(quadrant)};
}

double sine_at(double rest, int64_t quadrant) {
  const double value = (quadrant & 1) == 0 ? sine_near_zero(rest) : cosine_near_zero(rest);
  return (quadrant & 2) == 0 ? value : -value;
}

}  // namespace

// x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1) /
// (m + 1).
double natural_log(double x) {
  if (!(x > 0) || std::isinf(x)) return x == 0 ? -INFINITY : (x > 0 ? x : NAN);
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752440) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1);
  const double s2 = s * s;  // <= 0.0295: twelve terms reach 1e-19
  constexpr double kTerms[] = {1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                               1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
  const double series = s2 * polynomial(kTerms, s2);
  return exponent * 0.693147180559945309417232 + 2 * (s + s * series);
}

// x = n log 2 + r, |r| <= log(2) / 2; the upper part of log 2 has 33 bits, so that its product with n is exact.
double exponential(double x) {
  if (std::isnan(x)) return x;
  if (x > 709) return INFINITY;
  if (x < -708) return 0;
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  const double n = std::floor(x * 1.44269504088896338700 + 0.5);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  // Taylor's series: the first term left out is below 1e-19.
  constexpr double kTerms[] = {
      1.0 / 87178291200, 1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
      1.0 / 362880,      1.0 / 40320,      1.0 / 5040,      1.0 / 720,      1.0 / 120,
      1.0 / 24,          1.0 / 6,          1.0 / 2};
  return std::ldexp(1 + (r + r * r * polynomial(kTerms, r)), static_cast<int>(n));
}

double sine(double x) {
  const Angle angle = reduced(x);
  return sine_at(angle.rest, angle.quadrant);
}

double cosine(double x) {
  const Angle angle = reduced(x);
  return sine_at(angle.rest, angle.quadrant + 1);
}

}  // namespace penstock
