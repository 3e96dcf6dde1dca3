// The built binary in a folder of its own, for the commands that need no coordinator.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace penstock::client::testing {

struct Ran {
  int exit_code = -1;
  std::string out;
  std::string error;
};

class BuiltBinary : public ::testing::Test {
 protected:
  explicit BuiltBinary(std::string path) : binary_(std::move(path)) {}
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "penstock_offline_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  std::string contents(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }

  Ran penstock(const std::string& arguments, const std::string& output = "out.txt") const {
    const std::string command = "cd '" + folder_ + "' && '" + binary_ + "' " + arguments + " > " + output +
                                " 2> error.txt < /dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, contents("out.txt"), contents("error.txt")};
  }

 private:
  std::string binary_;
  std::string folder_;
};

}  // namespace penstock::client::testing
