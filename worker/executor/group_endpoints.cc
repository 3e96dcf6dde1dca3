#include "worker/executor/group_endpoints.h"

#include <algorithm>
#include <utility>

namespace penstock::worker {
namespace {

// An endpoint that says whose errors these are: its ranks are numbered inside the group.
class NamedEndpoint final : public Endpoint {
 public:
  NamedEndpoint(std::unique_ptr<Endpoint> inner, std::string name)
      : inner_(std::move(inner)), name_(std::move(name)) {}

  StatusOr<std::shared_ptr<void>> receive_memory(int64_t bytes) override {
    return inner_->receive_memory(bytes);
  }
  Status open(const Group& group, Rendezvous& rendezvous, Duration timeout) override {
    return named(inner_->open(group, rendezvous, timeout));
  }
  StatusOr<TransferId> post_send(RankIndex target, const void* data, int64_t bytes) override {
    return named(inner_->post_send(target, data, bytes));
  }
  StatusOr<TransferId> post_receive(RankIndex source, void* data, int64_t bytes) override {
    return named(inner_->post_receive(source, data, bytes));
  }
  Status wait(TransferId id) override { return named(inner_->wait(id)); }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  Status drain() override { return named(inner_->drain()); }

 private:
  Status named(const Status& status) const { return status.ok() ? status : with_context(status, name_); }
  StatusOr<TransferId> named(StatusOr<TransferId> posted) const {
    return posted.ok() ? std::move(posted) : StatusOr<TransferId>(named(posted.status()));
  }

  std::unique_ptr<Endpoint> inner_;
  std::string name_;
};

// "group data 1 (its rank 0 is the job's 4, 1 is 5, 2 is 6)"
std::string described(const plan::RankGroup& group) {
  constexpr size_t kShown = 16;
  std::string ranks;
  for (size_t i = 0; i < std::min(group.ranks.size(), kShown); ++i) {
    ranks += i == 0 ? fmt::format("its rank 0 is the job's {}", group.ranks[0].value)
                    : fmt::format(", {} is {}", i, group.ranks[i].value);
  }
  return fmt::format("group {} ({}{})", group.name, ranks, group.ranks.size() > kShown ? ", ..." : "");
}

JoinedGroup joined(plan::RankGroup group, RankIndex rank) {
  const GroupMember member{nullptr, group.member(rank), static_cast<int>(group.ranks.size())};
  return {std::move(group), member};
}

}  // namespace

GroupEndpoints::GroupEndpoints(const plan::ParallelSpec& parallel, RankIndex rank,
                               const MakeEndpoint& make_endpoint)
    : place_(plan::place_of_rank(parallel, rank)),
      experts_are_shared_out_(parallel.expert > 1),
      pipeline_(joined(plan::pipeline_group(parallel, place_.pipeline), rank)),
      data_(joined(plan::data_group(parallel, place_.pipeline_rank), rank)),
      expert_model_(joined(plan::expert_model_group(parallel, place_.pipeline_rank, place_.data_rank), rank)),
      expert_data_(
          joined(plan::expert_data_group(parallel, place_.pipeline_rank, place_.expert_rank), rank)) {
  if (parallel.pipelines() == 1) {
    pipeline_.group.name = "pipeline";
    opened_.push_back({&pipeline_, make_endpoint(parallel.p2p)});
    return;
  }
  for (JoinedGroup* group : {&pipeline_, &data_, &expert_model_, &expert_data_}) {
    if (group != &pipeline_ && group->member.ranks == 1) continue;
    if (group == &expert_data_ && !experts_are_shared_out_) continue;
    opened_.push_back(
        {group, std::make_unique<NamedEndpoint>(make_endpoint(parallel.p2p), described(group->group))});
  }
}

Status GroupEndpoints::open(const std::string& bind_address, const Rendezvouses& rendezvouses,
                            const Clock& clock, Duration timeout) {
  constexpr Duration kLeast = 1s;
  const TimePoint deadline = clock.now() + timeout;
  for (Opened& opened : opened_) {
    JoinedGroup& joined = *opened.joined;
    const Group group{.name = joined.group.name,
                      .rank = joined.member.rank,
                      .ranks = joined.member.ranks,
                      .bind_address = bind_address};
    const Duration left = std::max<Duration>(deadline - clock.now(), kLeast);
    PENSTOCK_RETURN_IF_ERROR(opened.endpoint->open(group, rendezvouses(group.name), left));
    joined.member.endpoint = opened.endpoint.get();
  }
  return ok_status();
}

Status GroupEndpoints::drain() {
  for (const Opened& opened : opened_) PENSTOCK_RETURN_IF_ERROR(opened.endpoint->drain());
  return ok_status();
}

void GroupEndpoints::abort(const std::string& reason) {
  for (const Opened& opened : opened_) opened.endpoint->abort(reason);
}

}  // namespace penstock::worker
