// A folder of small texts, jobs that read them, and what a microbatch of theirs holds.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "plan/spec/job_spec.h"
#include "worker/data/token_source.h"

namespace penstock::worker {

class TokenSourceTest : public ::testing::Test {
 protected:
  TokenSourceTest() {
    folder_ = std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_data_{}", ::getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~TokenSourceTest() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  // 4 samples of 8 tokens a step, in microbatches of 2.
  plan::JobSpec job(std::vector<std::string> sources) {
    plan::JobSpec job;
    job.model.vocab_size = 256;
    job.data.sources = std::move(sources);
    job.data.sequence_length = 8;
    job.train.global_batch_size = 4;
    job.train.microbatch_size = 2;
    job.train.seed = 1;
    return job;
  }

  static std::string counting(int64_t bytes, int64_t from = 0) {
    std::string text;
    for (int64_t i = 0; i < bytes; ++i) text.push_back(static_cast<char>((from + i) % 251));
    return text;
  }

  struct Microbatch {
    std::vector<int32_t> inputs;
    std::vector<int32_t> targets;
    std::vector<int32_t> starts;
    bool operator==(const Microbatch&) const = default;
  };
  static StatusOr<Microbatch> read(TokenSource& source, int64_t step, int64_t microbatch,
                                   size_t tokens = 16) {
    Microbatch read{std::vector<int32_t>(tokens), std::vector<int32_t>(tokens), std::vector<int32_t>(tokens)};
    PENSTOCK_RETURN_IF_ERROR(source.microbatch(StepIndex(step), MicrobatchIndex(microbatch), read.inputs,
                                               read.targets, read.starts));
    return read;
  }

  std::filesystem::path folder_;
};

}  // namespace penstock::worker
