#include "kernels/device/host_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace penstock::kernels {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The number behind `key` in lines of "key number ...".
std::optional<int64_t> number_behind(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first;
    int64_t number = 0;
    if (words >> first && first == key && words >> number) return number;
  }
  return std::nullopt;
}

std::optional<int64_t> number_of(const std::filesystem::path& path) {
  std::istringstream text(text_of(path));  // "max" is no number: no limit
  int64_t number = 0;
  return text >> number ? std::optional(number) : std::nullopt;
}

// The files of one version of control groups.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* reclaimable;  // a key of memory.stat
};
constexpr GroupFiles kVersions[] = {
    {"memory.max", "memory.current", "inactive_file"},
    {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}};

std::optional<int64_t> left_in(const std::filesystem::path& group) {
  for (const GroupFiles& files : kVersions) {
    const std::optional<int64_t> limit = number_of(group / files.limit);
    const std::optional<int64_t> used = number_of(group / files.used);
    if (!limit || !used) continue;
    const int64_t reclaimable = number_behind(text_of(group / "memory.stat"), files.reclaimable).value_or(0);
    return std::max<int64_t>(*limit - (*used - reclaimable), 0);
  }
  return std::nullopt;
}

// The path behind `marker` in /proc/self/cgroup: "0::/path" of version 2, "4:memory:/path" of version 1.
std::string group_behind(const std::string& marker) {
  std::istringstream lines(text_of("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t found = line.find(marker);
    if (found != std::string::npos) return line.substr(found + marker.size());
  }
  return "/";
}

}  // namespace

std::optional<int64_t> available_of_host(const std::string& meminfo) {
  const std::optional<int64_t> kibibytes = number_behind(meminfo, "MemAvailable:");
  return kibibytes ? std::optional(*kibibytes * 1024) : std::nullopt;
}

std::optional<int64_t> available_of_groups(const std::filesystem::path& mount, const std::string& group) {
  std::optional<int64_t> least;
  const auto narrow = [&](const std::filesystem::path& folder) {
    const std::optional<int64_t> left = left_in(folder);
    if (left && (!least || *left < *least)) least = left;
  };
  std::filesystem::path folder = mount;
  narrow(folder);
  for (const std::filesystem::path& part : std::filesystem::path(group).relative_path()) {
    folder /= part;
    narrow(folder);
  }
  return least;
}

int64_t available_memory_bytes() {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  return std::min(
      {available_of_host(text_of("/proc/meminfo")).value_or(kUnknown),
       available_of_groups("/sys/fs/cgroup", group_behind("0::")).value_or(kUnknown),
       available_of_groups("/sys/fs/cgroup/memory", group_behind(":memory:")).value_or(kUnknown)});
}

Status expect_memory(int64_t bytes, const std::string& purpose) {
  const int64_t available = available_memory_bytes();
  if (bytes <= available) return ok_status();
  return resource_exhausted(
      "no memory for {}: {} bytes asked for, {} are available here; use more workers or a smaller microbatch",
      purpose, bytes, available);
}

}  // namespace penstock::kernels
