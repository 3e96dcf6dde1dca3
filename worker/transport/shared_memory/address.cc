#include "worker/transport/shared_memory/address.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "base/text.h"

namespace penstock::worker {
namespace {

constexpr std::string_view kVersion = "penstock-window-1";
constexpr int64_t kLargestRegionBytes = int64_t{1} << 46;

template <typename Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool read_part(const std::string& text, WindowAddress::Part& part) {
  const std::vector<std::string> fields = split_on(text, ':');
  return fields.size() == 2 && read_number(fields[0], part.fd) && read_number(fields[1], part.bytes) &&
         part.fd >= 0 && part.bytes > 0 && part.bytes <= kLargestRegionBytes;
}

bool read_address(const std::vector<std::string>& fields, WindowAddress& address) {
  constexpr size_t kFixed = 6;
  if (fields.size() <= kFixed || fields.size() > kFixed + kRegions || fields[0] != kVersion) return false;
  address.neighbourhood = {.host = fields[1], .boot = fields[2], .processes = fields[3]};
  if (!read_number(fields[4], address.pid) || address.pid <= 0 || !read_number(fields[5], address.nonce))
    return false;
  for (size_t i = kFixed; i < fields.size(); ++i) {
    if (!read_part(fields[i], address.regions.emplace_back())) return false;
  }
  return true;
}

}  // namespace

StatusOr<Neighbourhood> here() {
  Neighbourhood neighbourhood;
  std::array<char, 256> text{};
  if (gethostname(text.data(), text.size() - 1) == 0) neighbourhood.host = text.data();
  if (neighbourhood.host.empty()) neighbourhood.host = "unnamed";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> neighbourhood.boot;
  const ssize_t size = readlink("/proc/self/ns/pid", text.data(), text.size());
  if (size > 0) neighbourhood.processes = std::string(text.data(), static_cast<size_t>(size));
  if (neighbourhood.boot.empty() || neighbourhood.processes.empty()) {
    return failed_precondition(
        "host {}: /proc does not tell its boot id (\"{}\") or the namespace of its process ids (\"{}\"), which "
        "one-sided transfers go by; set parallel.p2p: {{mode: two-sided}}",
        neighbourhood.host, neighbourhood.boot, neighbourhood.processes);
  }
  return neighbourhood;
}

std::string to_string(const WindowAddress& address) {
  const Neighbourhood& at = address.neighbourhood;
  std::string text =
      fmt::format("{} {} {} {} {} {}", kVersion, at.host, at.boot, at.processes, address.pid, address.nonce);
  for (const WindowAddress::Part& part : address.regions) text += fmt::format(" {}:{}", part.fd, part.bytes);
  return text;
}

StatusOr<WindowAddress> parse_window_address(const std::string& text) {
  WindowAddress address;
  if (read_address(split_on(text, ' '), address)) return address;
  return data_loss(
      "the address of a window: expected \"{} HOST BOOT NAMESPACE PID NONCE FD:BYTES...\", found \"{}\"",
      kVersion, text.substr(0, 200));
}

Status check_neighbours(RankIndex mine, const Neighbourhood& here, RankIndex theirs,
                        const Neighbourhood& there) {
  if (here.boot == there.boot && here.processes == there.processes) return ok_status();
  const char* obstacle = here.boot != there.boot ? "they are different hosts"
                                                 : "their containers do not see each other's processes";
  return failed_precondition(
      "rank {} on host {} and rank {} on host {} cannot share memory: {}; one-sided transfers stay within one host: "
      "run all ranks of the job there, or set parallel.p2p: {{mode: two-sided}}",
      mine.value, here.host, theirs.value, there.host, obstacle);
}

}  // namespace penstock::worker
