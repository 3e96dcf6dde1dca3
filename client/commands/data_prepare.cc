#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "client/commands/commands.h"
#include "client/commands/terminal.h"

namespace penstock::client {

int data_prepare(const std::vector<std::string>& arguments) {
  std::error_code failure;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", failure);
  if (failure) return report_error(unavailable("/proc/self/exe: {}", failure.message()));
  const std::string program = self.parent_path() / "penstock-prepare";
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());
  return report_error(
      unavailable("{} cannot be started: {}; it belongs beside penstock", program, std::strerror(errno)));
}

}  // namespace penstock::client
