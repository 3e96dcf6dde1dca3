// Where the ranks of a job stand: P ranks in a pipeline, and in each of its places a row of M_E x D_E ranks with the same
// stages, each of which belongs to a pipeline of its own.
//
//     rank = pipeline_rank x (M_E x D_E) + pipeline,   pipeline = data_rank x M_E + expert_rank
//
// Groups of a rank, all of ranks with its pipeline_rank but for the first:
//     pipeline      the P ranks with its `pipeline`: boundary tensors, the norm, tied embeddings
//     expert-model  the M_E ranks with its data_rank, among which a block's experts are shared out: rank e has experts
//                   [e x E / M_E, (e + 1) x E / M_E)
//     expert-data   the D_E ranks with its expert_rank: they hold the same experts
//     data          all M_E x D_E: they hold the same dense parameters
// Ranks of an expert-model group are neighbours, so that placement keeps them on one host where it can.
//
// Microbatch i of pipeline n is number i x (M_E x D_E) + n of the step: samples, dropout and the router's losses go by
// that number. Pure; any thread.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/parameters.h"

namespace penstock::plan {

struct RankPlace {
  RankIndex pipeline_rank;  // the rank of the schedule's program
  int pipeline = 0;
  int expert_rank = 0;
  int data_rank = 0;
  auto operator<=>(const RankPlace&) const = default;
};

inline RankPlace place_of_rank(const ParallelSpec& parallel, RankIndex rank) {
  const int pipelines = parallel.pipelines();
  const int pipeline = static_cast<int>(rank.value) % pipelines;
  return {.pipeline_rank = RankIndex(rank.value / pipelines),
          .pipeline = pipeline,
          .expert_rank = pipeline % parallel.expert,
          .data_rank = pipeline / parallel.expert};
}

inline RankIndex rank_at(const ParallelSpec& parallel, RankIndex pipeline_rank, int pipeline) {
  return RankIndex(pipeline_rank.value * parallel.pipelines() + pipeline);
}

// Of every block that the rank has a part in; all of them where experts are not shared out.
inline ExpertRange experts_at(const JobSpec& job, const RankPlace& place) {
  const int64_t experts = job.local_experts();
  return {.first = place.expert_rank * experts, .end = (place.expert_rank + 1) * experts};
}

// The number in its step of a pipeline's microbatch.
inline MicrobatchIndex microbatch_of_step(const ParallelSpec& parallel, int pipeline,
                                          MicrobatchIndex microbatch) {
  return MicrobatchIndex(microbatch.value * parallel.pipelines() + pipeline);
}

}  // namespace penstock::plan
