// A step allocates nothing for its data: memory that is asked for in a step is asked for in every one.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <vector>

#include "worker/data/token_source.h"

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) std::abort();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace penstock::worker {
namespace {

TEST(Allocation, a_step_reads_and_counts_its_tokens_without_any) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / fmt::format("penstock_allocation_{}.txt", ::getpid());
  std::ofstream(path) << std::string(5000, 'a') << std::string(5000, 'b');
  plan::JobSpec job;
  job.model.vocab_size = 256;
  job.data.sources = {path, PENSTOCK_SOURCE_DIR "/worker/data/allocation_test.cc"};
  job.data.weights = {1, 2};
  job.data.sequence_length = 16;
  job.data.epochs = 0;
  job.data.end_of_document = '\n';
  job.train.global_batch_size = 5;
  job.train.microbatch_size = 2;
  TokenSource source = TokenSource::open(job).value();
  std::vector<int32_t> inputs(32);
  std::vector<int32_t> targets(32);
  std::vector<int32_t> starts(32);

  const int64_t before = allocations;
  bool read = true;
  for (int64_t step = 0; step < 50; ++step) {
    read = read && source.target_count(StepIndex(step)).ok();
    for (int64_t i = 0; i < 3; ++i) {
      read = read && source.microbatch(StepIndex(step), MicrobatchIndex(i), inputs, targets, starts).ok();
    }
  }
  EXPECT_EQ(allocations - before, 0);
  EXPECT_TRUE(read);
  EXPECT_GT(before, 0);  // the counter counts
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace penstock::worker
