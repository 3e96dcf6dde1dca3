// A small block whose experts a group of ranks shares out, its steps on threads of this process, and the same block on one
// rank with all experts. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "worker/model/testing/block_rank.h"
#include "worker/transport/in_process.h"

namespace penstock::worker {

struct Variant {
  int ranks = 2;
  std::string dtype = "float32";
  double capacity_factor = 0;
  bool halves = false;
  bool recomputed = false;
  int64_t shared = 0;  // shared experts

  friend void PrintTo(const Variant& variant, std::ostream* out) {
    *out << variant.ranks << " ranks " << variant.dtype << " capacity " << variant.capacity_factor
         << (variant.halves ? " in halves" : "") << (variant.recomputed ? " recomputed" : "")
         << (variant.shared > 0 ? " beside shared ones" : "");
  }
};

inline constexpr int64_t kExperts = 8, kMicrobatches = 2, kSequences = 2;

inline plan::JobSpec job_of(const Variant& variant) {
  plan::JobSpec job;
  job.model.vocab_size = 64;
  job.model.hidden_size = 20;
  job.model.num_hidden_layers = 1;
  job.model.num_attention_heads = 2;
  job.model.num_key_value_heads = 1;
  job.model.intermediate_size = 24;
  job.model.initializer_range = 0.3;
  job.model.moe = {.num_experts = kExperts,
                   .num_experts_per_tok = 3,
                   .moe_intermediate_size = 12,
                   .layers = {0},
                   .norm_topk_prob = true,
                   .router_aux_loss_coef = 0.1,
                   .router_z_loss_coef = 0.01,
                   .capacity_factor = variant.capacity_factor,
                   .num_shared_experts = variant.shared};
  job.data.sequence_length = 15;
  job.train.dtype = variant.dtype;
  job.train.microbatch_size = kSequences;
  // The last sequence of the last microbatch is filled up.
  job.train.global_batch_size = kMicrobatches * kSequences * variant.ranks - 1;
  job.train.seed = 3;
  job.parallel.expert = variant.ranks;
  job.two_batch_overlap = variant.halves;
  if (variant.recomputed) job.recompute = {0};
  return job;
}

// The whole step on one rank with all experts, cut into microbatches of so many sequences.
inline plan::JobSpec on_one_rank(plan::JobSpec job, int64_t sequences) {
  job.parallel.expert = 1;
  job.train.microbatch_size = sequences;
  return job;
}

using Work = std::function<Status(BlockRank&)>;
using Prepare = std::function<void(ParameterStore&)>;
using WrapEndpoint = std::function<std::unique_ptr<Endpoint>(int rank, std::unique_ptr<Endpoint>)>;

inline void leave_weights(ParameterStore&) {}

// All ranks at once, each with its own thread and endpoint; they stay for their results.
inline std::vector<std::unique_ptr<BlockRank>> on_ranks(const plan::JobSpec& job, const Work& work,
                                                        const Prepare& prepare = leave_weights,
                                                        const WrapEndpoint& wrap = {}) {
  const int ranks = job.parallel.expert;
  const auto hub = make_in_process_hub();
  InProcessRendezvous rendezvous;
  std::vector<std::unique_ptr<BlockRank>> blocks(static_cast<size_t>(ranks));
  std::vector<Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::vector<GroupMember> members;
  for (int rank = 0; rank < ranks; ++rank) {
    auto endpoint = make_in_process_endpoint(hub);
    endpoints.push_back(wrap ? wrap(rank, std::move(endpoint)) : std::move(endpoint));
    members.push_back({.endpoint = nullptr, .rank = RankIndex(rank), .ranks = ranks});
  }
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto rank = static_cast<size_t>(r);
      // As a rank does: its memory and its warm-up first, and then it meets the others.
      blocks[rank] = std::make_unique<BlockRank>(job, r, &members[rank]);
      prepare(blocks[rank]->parameters());
      blocks[rank]->begin_step();
      Status& status = statuses[rank];
      status = endpoints[rank]->open({"expert-model 0.0", RankIndex(r), ranks, "127.0.0.1"}, rendezvous, 30s);
      members[rank].endpoint = endpoints[rank].get();
      if (status.ok()) status = work(*blocks[rank]);
      if (status.ok()) {
        status = endpoints[rank]->drain();
      } else {
        endpoints[rank]->abort(message(status));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
  return blocks;
}

inline std::unique_ptr<BlockRank> alone(const plan::JobSpec& job, const Work& work,
                                        const Prepare& prepare = leave_weights) {
  auto block = std::make_unique<BlockRank>(job, 0, nullptr);
  prepare(block->parameters());
  block->begin_step();
  const Status status = work(*block);
  EXPECT_TRUE(status.ok()) << status;
  return block;
}

// One microbatch after the other.
inline Status in_order(BlockRank& block, int64_t microbatches) {
  for (int64_t m = 0; m < microbatches; ++m) {
    PENSTOCK_RETURN_IF_ERROR(block.forward(m));
    PENSTOCK_RETURN_IF_ERROR(block.backward(m));
  }
  return ok_status();
}
inline Status all_in_order(BlockRank& block) {
  return in_order(block, kMicrobatches);
}
// As zb-h1: both in flight, halves apart.
inline Status with_split_backwards(BlockRank& block) {
  PENSTOCK_RETURN_IF_ERROR(block.forward(0));
  PENSTOCK_RETURN_IF_ERROR(block.forward(1));
  PENSTOCK_RETURN_IF_ERROR(block.input_gradient(0));
  PENSTOCK_RETURN_IF_ERROR(block.input_gradient(1));
  PENSTOCK_RETURN_IF_ERROR(block.weight_gradient(0));
  return block.weight_gradient(1);
}

}  // namespace penstock::worker
