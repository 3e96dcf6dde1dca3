// The groups that a rank of a job is in (plan/spec/rank_groups.h), each with an endpoint of its own.
//
// All are opened before the first step, by every rank in one order: pipeline, data, expert-model, expert-data. Groups of
// one have no endpoint, but for the pipeline; where experts are not shared out, the data group is that of their replicas.
// Errors of an endpoint name its group and the group's ranks in the job, where the job has more than a pipeline.
// Thread: the interpreter's; abort() from any.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/rank_groups.h"
#include "plan/spec/rank_place.h"
#include "worker/collectives/group_member.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

// A group and this rank's membership in it.
struct JoinedGroup {
  plan::RankGroup group;
  GroupMember member;  // its endpoint is null until all groups are open, and in a group of one

  RankIndex in_job(RankIndex rank) const { return group.ranks[static_cast<size_t>(rank.value)]; }
};

class GroupEndpoints {
 public:
  using MakeEndpoint = std::function<std::unique_ptr<Endpoint>(plan::P2pMode)>;
  using Rendezvouses = std::function<Rendezvous&(const std::string& communicator)>;

  GroupEndpoints(const plan::ParallelSpec& parallel, RankIndex rank, const MakeEndpoint& make_endpoint);

  const plan::RankPlace& place() const { return place_; }
  // Where they are does not change.
  const JoinedGroup& pipeline() const { return pipeline_; }
  const JoinedGroup& data() const { return data_; }
  const JoinedGroup& expert_model() const { return expert_model_; }
  const JoinedGroup& expert_data() const { return experts_are_shared_out_ ? expert_data_ : data_; }

  // That of the pipeline before it is open: for memory that peers write into.
  Endpoint& pipeline_endpoint() { return *opened_.front().endpoint; }

  // `timeout`: for all of them.
  Status open(const std::string& bind_address, const Rendezvouses& rendezvouses, const Clock& clock,
              Duration timeout);
  Status drain();
  void abort(const std::string& reason);

 private:
  struct Opened {
    JoinedGroup* joined = nullptr;
    std::unique_ptr<Endpoint> endpoint;
  };

  const plan::RankPlace place_;
  const bool experts_are_shared_out_;
  JoinedGroup pipeline_, data_, expert_model_, expert_data_;
  std::vector<Opened> opened_;  // in their order
};

}  // namespace penstock::worker
