// A job as the programs of tests/perf measure it: a small Llama on random tokens, with its ranks' assignments.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "plan/schedule/program.h"
#include "proto/codec/codec.h"

namespace penstock::perf {

// Random tokens (uint16) in a file of its own, removed at the end.
class TokenFile {
 public:
  TokenFile(int64_t tokens, int64_t vocabulary);
  ~TokenFile();
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct MeasuredJob {
  std::filesystem::path tokens;
  int64_t vocabulary = 8000;
  int64_t hidden = 512;
  int64_t layers = 8;
  int64_t heads = 8;
  int64_t intermediate = 1408;
  int64_t sequence_length = 256;
  int64_t microbatch_size = 2;
  int64_t microbatches = 8;
  std::string schedule = "1f1b";
  int ranks = 1;
  int stages_per_rank = 1;
  std::string p2p = "two-sided";
  std::string dtype = "float32";
  int steps = 1;
  std::string extra{};  // lines added to the job file

  std::string yaml() const;
  plan::ComputeProgram program() const;
  std::vector<ExecutorAssignment> assignments() const;  // [rank]
};

}  // namespace penstock::perf
