#include "kernels/ops/cpu/lanes.h"

#include <cmath>

namespace penstock::kernels::cpu {

// x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s) = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1) /
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
  double series = 0;
  for (double term : kTerms) series = (series + term) * s2;
  return exponent * 0.693147180559945309417232 + 2 * (s + s * series);
}

}  // namespace penstock::kernels::cpu
