#include "client/connection/list_of_names.h"

#include <fmt/format.h>

namespace penstock::client {

std::string with_list_of_names(const std::string& not_found) {
  if (not_found.find(": not known") == std::string::npos) return not_found;
  const bool is_worker = not_found.find("worker ") != std::string::npos;
  return fmt::format("{}{} `penstock get {}`", not_found, not_found.ends_with('?') ? " See" : "; see",
                     is_worker ? "workers" : "jobs");
}

}  // namespace penstock::client
