#include "base/host_port.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/utf8.h"

namespace penstock {
namespace {

std::optional<uint16_t> parse_port(std::string_view digits) {
  uint16_t port = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, failure] = std::from_chars(digits.data(), end, port);
  if (digits.empty() || failure != std::errc() || stop != end) return std::nullopt;
  return port;
}

bool is_host(std::string_view host, bool bracketed) {
  const auto allowed = [&](char c) {
    const bool plain = c > ' ' && c != 0x7f && c != ',' && c != '[' && c != ']';
    return plain && (bracketed || c != ':');
  };
  return !host.empty() && std::all_of(host.begin(), host.end(), allowed) &&
         (!bracketed || host.find(':') != std::string_view::npos);
}

}  // namespace

StatusOr<HostPort> parse_host_port(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos) {
    std::string_view host = text.substr(0, colon);
    const bool bracketed = host.size() >= 2 && host.front() == '[' && host.back() == ']';
    if (bracketed) host = host.substr(1, host.size() - 2);
    const std::optional<uint16_t> port = parse_port(text.substr(colon + 1));
    if (port && is_host(host, bracketed)) return HostPort{std::string(host), *port};
  }
  constexpr size_t kShown = 80;
  return invalid_argument("expected HOST:PORT such as 127.0.0.1:7070 or [::1]:7070, found \"{}\"",
                          utf8_cleaned(text, kShown));
}

std::string to_string(const HostPort& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", brackets ? "[" : "", address.host, brackets ? "]" : "", address.port);
}

}  // namespace penstock
