// One training step of a small model, forward and backward, on one thread of control: what the stages cost
// before any pipeline. Arguments: hidden size, compute threads.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "worker/model/testing/sequential_run.h"

namespace penstock::worker {
namespace {

void step(benchmark::State& state) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("penstock_bench_{}.txt", ::getpid());
  std::ofstream(path, std::ios::binary) << std::string(1'000'000, 'p');
  plan::JobSpec job;
  job.model.vocab_size = 256;
  job.model.hidden_size = state.range(0);
  job.model.num_hidden_layers = 8;
  job.model.num_attention_heads = 4;
  job.model.num_key_value_heads = 4;
  job.model.intermediate_size = state.range(0) * 11 / 4;
  job.data.sources = {path};
  job.data.sequence_length = 128;
  job.train.global_batch_size = 32;
  job.train.microbatch_size = 4;
  SequentialRun run(job, cut(job.model), static_cast<int>(state.range(1)));
  for (auto _ : state) run.run_step(0);
  state.SetItemsProcessed(state.iterations() * job.tokens_per_step());
  std::filesystem::remove(path);
}
BENCHMARK(step)->Args({128, 1})->Args({128, 2})->Args({512, 1})->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace penstock::worker
