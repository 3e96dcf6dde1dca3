// The job file: what a user submits, parsed and checked. Names as in Hugging Face config.json where they
// exist.
//
// parse_job_spec is the only reader, used by the client (--dry-run), by the coordinator at submit and by the
// worker on arrival, so one set of rules and messages holds everywhere. Pure: opens no file.
//
// Bounds, so that no product of fields overflows int64 and nothing that follows allocates without bound:
//   vocab_size 2^22, hidden_size 2^17, head_dim 2^13, intermediate_size, moe_intermediate_size and
//   num_shared_experts x moe_intermediate_size 2^19,
//   num_hidden_layers 4,096, num_attention_heads 4,096, num_experts 1,024 and 24,576 over all layers,
//   num_experts_per_tok 64, max_position_embeddings and sequence_length 2^20, global_batch_size 2^20, steps 10^7,
//   pipeline 4,096, ranks 16,384, stages_per_rank 1,024, threads 256, sources 1,024 of 4,096 bytes each; tokens per microbatch 2^20,
//   microbatches per step 65,536, stages_per_rank x microbatches 2^17, stages x microbatches 2^23, parameters
//   2^42, activations of one step (all microbatches held) 2^60 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "plan/schedule/action.h"

namespace penstock::plan {

// Routed experts in place of the MLP, in some blocks.
struct MoeSpec {
  int64_t num_experts = 0;            // 0: every block has an MLP
  int64_t num_experts_per_tok = 0;    // choices of a token
  int64_t moe_intermediate_size = 0;  // of one expert
  std::vector<int64_t> layers{};      // blocks with experts, ascending; default: all
  bool norm_topk_prob = false;        // a token's weights sum to one
  // What the losses that keep experts in use weigh; the reported loss is without them.
  double router_aux_loss_coef = 0.01;  // balance, of each sequence
  double router_z_loss_coef = 0;
  double capacity_factor = 0;  // rows of an expert over its even share of a microbatch; 0: dropless
  // Experts that every token goes through, beside its choices: one network of so many times moe_intermediate_size.
  int64_t num_shared_experts = 0;
};

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
  int64_t head_dim = 0;  // size of one head; 0: hidden_size / num_attention_heads
  bool tie_word_embeddings = false;
  bool qk_norm = false;  // RMSNorm of every query and key head before RoPE, one weight a layer for all heads
  bool qk_norm_across_heads =
      false;                  // with qk_norm: one of all queries and one of all keys, as OLMoE has them
  double hidden_dropout = 0;  // of what attention and MLP add to the residual
  std::string from{};         // Hugging Face directory whose weights the job starts from; "": initialised
  MoeSpec moe{};

  int64_t head_size() const { return head_dim > 0 ? head_dim : hidden_size / num_attention_heads; }
  bool has_experts(LayerIndex layer) const;
};

struct DataSpec {
  std::vector<std::string> sources;   // paths; a pattern is expanded by the worker, sorted
  std::vector<double> weights;        // beside sources: share of the samples; empty: one behind another
  std::string format = "auto";        // auto | text | npy | bin | megatron; auto goes by each file's name
  std::string tokenizer = "bytes";    // of text: bytes; of files of tokens: none
  std::string token_type = "uint16";  // of raw .bin files: uint16 | uint32
  int64_t sequence_length = 0;
  int64_t epochs = 1;            // passes over the data, each in an order of its own; 0: without end
  int64_t end_of_document = -1;  // token behind each document, inside of which attention stays; -1: none
};

// A forward-only pass over held-out data between steps.
struct ValidationSpec {
  DataSpec data;             // no weights, one epoch; sequence_length and tokenizer as in training
  int64_t every = 0;         // steps between passes; 0: no validation
  int64_t microbatches = 0;  // of each pass, in all pipelines; always the first ones of the held-out data
};

struct OptimizerSpec {
  std::string name = "adamw";
  double lr = 1e-3;
  std::array<double, 2> betas = {0.9, 0.95};
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip_grad_norm = 1.0;  // 0: no clipping
  // When the gradient norm is not finite: fail (the run has diverged), or skip (that step changes nothing).
  std::string nonfinite = "fail";
  // Parameters without weight decay, by name, * for any characters.
  std::vector<std::string> no_decay = {"*norm.weight"};
};

struct LearningRateSchedule {
  std::string name = "constant";  // constant | linear | cosine | wsd (warm-up, stable, decay)
  int64_t warmup_steps = 0;
  int64_t decay_steps = 0;  // of wsd: the last ones of the run
  double min_ratio = 0.1;   // all but constant end at lr x min_ratio
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
// InvalidArgument for any other text. That the model has such a block is not checked here.
StatusOr<Item> parse_item(const std::string& text);

// What some schedules take beside their shape.
struct ScheduleOptions {
  // 1f1b-v: forwards that a rank may hold above the schedule's peak: none, one count for all, or one a rank.
  std::vector<int> extra_warm_up;
  // Of the searched schedules, which whoever submits searches for:
  int64_t memory_limit = 0;  // forwards that a rank may hold, of one stage each; 0: no limit
  std::array<std::string, 3> costs = {"1", "1", "1"};  // decimals: times of F, I and W, in any one unit
  double search_seconds = 2;

  bool operator==(const ScheduleOptions&) const = default;
};

// How messages pass between ranks: both ends take part, or the sender writes into memory of the receiver, which asks
// for one host.
enum class P2pMode : uint8_t { TwoSided, OneSided };

// P x M_E x D_E ranks; rank_place.h says where each stands.
struct ParallelSpec {
  int pipeline = 1;         // P
  int expert = 1;           // M_E: ranks of a stage among which the experts of its blocks are shared out
  int data = 1;             // D_E: how often each expert is there
  int stages_per_rank = 1;  // V
  // Moments of the optimizer stand on one rank each of those that hold the parameter (ZeRO-1); the bits are the same.
  bool shard_optimizer = false;
  std::string schedule = "1f1b";
  std::string optimizer_step = "barrier";  // or post-validated: plan/schedule/post_validation.h
  ScheduleOptions schedule_options;
  // Of pipedream and pipedream-2bw: updates between two drains of the pipeline, which one program spans. 0: every update
  // drains it.
  int flush_every = 0;
  // Of a schedule "file:PATH", and of a searched one once it has been searched for: what every rank runs, in order;
  // schedule_source.h.
  std::vector<std::vector<Action>> program;
  P2pMode p2p = P2pMode::TwoSided;
  Split split;  // resolved: `auto`, `layers:` and baselines become this

  // Pipelines side by side, each with microbatches of its own: the dense data-parallel degree.
  int pipelines() const { return expert * data; }
};

// How long an emulated device takes, in whole nanoseconds of its time: device.costs x device.time_factor.
struct EmulatedCosts {
  struct Stage {
    int64_t forward_ns = 0;
    int64_t backward_ns = 0;         // fused; where it is not said: input and weight gradient together
    int64_t input_gradient_ns = 0;   // 0 where it is not said, and no action of the schedule is one
    int64_t weight_gradient_ns = 0;  // the same
  };
  std::vector<Stage> stages;
  int64_t overlapped_pair_ns = 0;  // 0: the sum of its halves
  int64_t latency_ns = 0;          // of a message, after it left its link
  int64_t message_ns = 0;          // that a boundary tensor holds its link
};

struct DeviceSpec {
  std::string kind = "cpu";  // cpu | emulated: timed waits, nothing is computed
  int threads = 0;           // compute threads per rank; 0: not said, the worker's own default
  EmulatedCosts costs;       // of an emulated device
  // Receives stand right before their consumers: what posting them early is measured against. Emulated only.
  bool posts_at_consumer = false;

  bool emulated() const { return kind == "emulated"; }
};

// Which steps' ranks tell when each of their actions ran: an early one, and every `every`th.
struct TraceSpec {
  int64_t every = 100;  // 0: none
};

struct CheckpointSpec {
  std::string directory{};  // "": below the coordinator's state
  int64_t every = 0;        // steps between checkpoints; 0: none
  int64_t keep = 3;         // the newest ones, of this job
};

// Another job's checkpoint, whose training the job goes on with: weights, moments, step, data position, random streams.
struct StartSpec {
  std::string path{};   // its folder, which is only read; "": the job begins at step 0
  int64_t step = 0;     // steps that it holds
  int64_t samples = 0;  // sequences that they have consumed
};

// Of attempts that a lost worker, a dead executor or a rank's error has ended.
struct RestartSpec {
  int64_t max = 0;                // in all; default: 5 with checkpoints, else none
  int64_t no_progress_limit = 3;  // behind one another without a new checkpoint
  StartSpec from{};
};

// Whether the coordinator looks for a better split in what the job's stages took: it says so, or goes on with it itself.
enum class Rebalance : uint8_t { Off, Propose, Apply };

struct JobSpec {
  std::string name;
  ModelSpec model;
  DataSpec data;
  TrainSpec train;
  ParallelSpec parallel;
  DeviceSpec device;
  ValidationSpec validation;
  TraceSpec trace;
  std::vector<int64_t>
      recompute;  // blocks, ascending, that keep their input alone and run again before their backward
  // The halves of a microbatch take turns in a block's experts: one travels while the other is computed.
  bool two_batch_overlap = false;
  int64_t memory_budget_bytes = 0;  // of a rank; 0: none
  CheckpointSpec checkpoint;
  RestartSpec restart;
  Rebalance rebalance = Rebalance::Off;

  std::string yaml;                  // the text that was parsed, kept to hand on
  std::vector<std::string> notes;    // said aloud at submit: what was chosen, what is not yet effective
  std::map<std::string, int> lines;  // line of each key that was read: "parallel.schedule" -> 14

  int stages() const { return parallel.pipeline * parallel.stages_per_rank; }
  int ranks() const { return parallel.pipeline * parallel.pipelines(); }
  // Ranks step without waiting for each other, and compute with older weights.
  bool is_asynchronous() const { return parallel.flush_every > 0; }
  // Of each pipeline in a step. What is missing from the last ones is filled up with sequences that count for nothing.
  int64_t microbatches() const {
    const int64_t sequences = train.microbatch_size * parallel.pipelines();
    return (train.global_batch_size + sequences - 1) / sequences;
  }
  // Of each pipeline in a pass of validation.
  int64_t validation_microbatches() const {
    return (validation.microbatches + parallel.pipelines() - 1) / parallel.pipelines();
  }
  int64_t tokens_per_microbatch() const { return train.microbatch_size * data.sequence_length; }
  // Of a tensor that passes between two stages.
  int64_t boundary_bytes() const {
    return tokens_per_microbatch() * model.hidden_size * (train.dtype == "bfloat16" ? 2 : 4);
  }
  int64_t tokens_per_step() const { return train.global_batch_size * data.sequence_length; }
  // Parts of a microbatch whose rows go to their experts one after the other: the halves of a two-batch overlap.
  int64_t expert_parts() const { return two_batch_overlap ? 2 : 1; }
  int64_t tokens_per_part() const { return tokens_per_microbatch() / expert_parts(); }
  // Rows that one expert takes of a part at most; 0: all that come.
  int64_t expert_capacity() const;
  // Rows that the experts of one block take of a part at most, all together.
  int64_t expert_rows() const;
  // Experts of a block on one rank, and the rows that may come to them: of one part of each rank that shares out the
  // block's experts.
  int64_t local_experts() const { return model.moe.num_experts / parallel.expert; }
  int64_t local_expert_rows() const;
  bool recomputes(LayerIndex layer) const;
};

// InvalidArgument: one line per problem, up to ten, by their place in the file, each
// "line N: field: expected ..., found ...; did you mean X?".
// A section that is designed but not built yet is refused as such, by key. Text over kLargestJobFileBytes
// (limits.h) is refused.
// The schedule must be one that plan::generate knows and that takes this stages_per_rank, or a file's with its program.
StatusOr<JobSpec> parse_job_spec(const std::string& yaml);

// "line 14: parallel.schedule", for a problem that is found after parsing; only the field where it has no
// line.
std::string place_of(const JobSpec& spec, const std::string& field);

// The same text, line for line, with every relative path under data.source, validation.source, model.from,
// restart.from and checkpoint.directory put below `directory` (absolute), which is what a person means by it: the
// job file's own directory. InvalidArgument when the text is no YAML that parse_job_spec reads, or a path does not
// stand on one line.
StatusOr<std::string> with_absolute_sources(const std::string& yaml, const std::string& directory);

// All items of the model in model order.
std::vector<Item> model_items(const ModelSpec& model);

// InvalidArgument unless every item stands once, in model order, and every stage holds one. For a split that
// did not come from parse_job_spec.
Status check_split(const ModelSpec& model, const Split& split);

// Equal counts of items, the remainder in the middle stages. 1 <= stages <= items.
Split automatic_split(const ModelSpec& model, int stages);
// Equal counts of blocks with the head counted as one, the remainder in the middle stages; the embedding
// comes on top in the first stage. 1 <= stages <= blocks + 1.
Split last_lighter_split(const ModelSpec& model, int stages);

}  // namespace penstock::plan
