// The job file: what a user submits, parsed and checked. Names as in Hugging Face config.json where they exist.
//
// parse_job_spec is the only reader, used by the client (--dry-run), by the coordinator at submit and by the worker
// on arrival, so one set of rules and messages holds everywhere. Pure: opens no file.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace penstock::plan {

struct ModelSpec {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;  // default: num_attention_heads
  int64_t intermediate_size = 0;
  int64_t max_position_embeddings = 0;
  double rope_theta = 10000;
  double rms_norm_eps = 1e-5;
  double initializer_range = 0.02;

  int64_t head_size() const { return hidden_size / num_attention_heads; }
};

struct DataSpec {
  std::vector<std::string> sources;  // paths of text files; a pattern is expanded by the worker, sorted
  std::string format = "text";
  std::string tokenizer = "bytes";
  int64_t sequence_length = 0;
};

struct OptimizerSpec {
  std::string name = "adamw";
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_grad_norm = 1.0;  // 0: no clipping
};

struct LearningRateSchedule {
  std::string name = "constant";  // constant | cosine
  int64_t warmup_steps = 0;
  double min_ratio = 0.1;  // cosine ends at lr x min_ratio
};

struct TrainSpec {
  int64_t steps = 0;
  int64_t global_batch_size = 0;  // sequences per step
  int64_t microbatch_size = 0;    // sequences per microbatch
  std::string dtype = "float32";
  int64_t seed = 1;
  OptimizerSpec optimizer;
  LearningRateSchedule lr_schedule;
};

// An item of the partition: the embedding, one block, or the head (final norm, LM head, loss).
enum class ItemKind : uint8_t { Embedding, Block, Head };
struct Item {
  ItemKind kind = ItemKind::Block;
  LayerIndex layer;  // of a block
  auto operator<=>(const Item&) const = default;
};
// split[stage] lists its items, contiguous in model order: embedding, 0, 1, ..., L-1, head.
using Split = std::vector<std::vector<Item>>;
std::string to_string(const Item& item);  // "embedding", "3", "head"

struct ParallelSpec {
  int pipeline = 1;         // P
  int stages_per_rank = 1;  // V
  std::string schedule = "1f1b";
  Split split;  // resolved: `auto`, `layers:` and baselines become this
};

struct DeviceSpec {
  std::string kind = "cpu";
  int threads = 1;  // compute threads per rank
};

struct JobSpec {
  std::string name;
  ModelSpec model;
  DataSpec data;
  TrainSpec train;
  ParallelSpec parallel;
  DeviceSpec device;
  int64_t memory_budget_bytes = 0;  // 0: none
  int restart_max = 0;              // until recovery is built every attempt is the last

  std::string yaml;                 // the text that was parsed, kept to hand on
  std::vector<std::string> notes;   // said aloud at submit: what is accepted and not yet effective

  int stages() const { return parallel.pipeline * parallel.stages_per_rank; }
  int ranks() const { return parallel.pipeline; }
  int64_t microbatches() const { return train.global_batch_size / train.microbatch_size; }
  int64_t tokens_per_microbatch() const { return train.microbatch_size * data.sequence_length; }
  int64_t tokens_per_step() const { return train.global_batch_size * data.sequence_length; }
};

// InvalidArgument: one message per problem, up to ten, each "line N: field: expected ..., found ...; did you mean X?".
// A section that is designed but not built yet is refused as such, by key. Text over 1 MiB is refused.
StatusOr<JobSpec> parse_job_spec(const std::string& yaml);

// All items of the model in model order.
std::vector<Item> model_items(const ModelSpec& model);

// Equal counts of items, the remainder in the middle stages.
Split automatic_split(const ModelSpec& model, int stages);

}  // namespace penstock::plan
