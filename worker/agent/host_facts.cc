#include "worker/agent/host_facts.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

namespace penstock::worker {

std::string host_id() {
  std::string id;
  std::ifstream("/etc/machine-id") >> id;
  if (!id.empty()) return id;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string cpu_fingerprint() {
  std::ifstream file("/proc/cpuinfo");
  std::string model = "unknown processor";
  std::string sets;
  for (std::string line; std::getline(file, line) && !line.empty();) {  // the first processor's block
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name")) model = line.substr(std::min(colon + 2, line.size()));
    if (!line.starts_with("flags")) continue;
    std::istringstream flags(line.substr(colon + 1));
    for (std::string flag; flags >> flag;) {
      if (flag == "avx2" || flag == "avx512f" || flag == "avx512_bf16" || flag == "amx_bf16")
        sets += " " + flag;
    }
  }
  return model + ";" + sets;
}

int64_t new_incarnation(const Clock& clock) {
  return clock.unix_milliseconds();
}

}  // namespace penstock::worker
