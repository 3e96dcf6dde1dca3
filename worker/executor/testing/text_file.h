// A text to train on, a file of this test process alone. Tests only.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace penstock::worker {

class TextFile {
 public:
  // `name`: of the test that reads it.
  TextFile(const std::string& name, int lines)
      : path_(std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_{}_{}.txt", name, owner_)) {
    std::ofstream text(path_);
    for (int i = 0; i < lines; ++i) text << "line " << i % 17 << " of the water book; ";
  }
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  ~TextFile() {
    if (getpid() == owner_) std::filesystem::remove(path_);  // forked executors leave it alone
  }
  const std::string& path() const { return path_; }

 private:
  pid_t owner_ = getpid();
  std::string path_;
};

}  // namespace penstock::worker
