// Stops the process on a programmer's mistake and prints both values. Never used on input.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace penstock::check {
[[noreturn]] inline void failed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, what.c_str());
  std::abort();
}
}  // namespace penstock::check

#define PENSTOCK_CHECK(condition, ...)                                                                   \
  do {                                                                                                   \
    if (!(condition)) [[unlikely]]                                                                       \
      ::penstock::check::failed(__FILE__, __LINE__,                                                      \
                                std::string(#condition) __VA_OPT__(+": " + ::fmt::format(__VA_ARGS__))); \
  } while (false)

#define PENSTOCK_CHECK_OP(a, op, b)                                                                         \
  do {                                                                                                      \
    const auto& penstock_a = (a);                                                                           \
    const auto& penstock_b = (b);                                                                           \
    if (!(penstock_a op penstock_b)) [[unlikely]]                                                           \
      ::penstock::check::failed(                                                                            \
          __FILE__, __LINE__, ::fmt::format(#a " " #op " " #b " ({} against {})", penstock_a, penstock_b)); \
  } while (false)
#define PENSTOCK_CHECK_EQ(a, b) PENSTOCK_CHECK_OP(a, ==, b)
#define PENSTOCK_CHECK_LT(a, b) PENSTOCK_CHECK_OP(a, <, b)
#define PENSTOCK_CHECK_LE(a, b) PENSTOCK_CHECK_OP(a, <=, b)
