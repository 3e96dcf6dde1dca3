#include "worker/executor/shared_norms.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace penstock::worker {
namespace {

// Of replicas: two numbers are one sum. Where both are no numbers, which one a sum of two has depends on their order.
bool have_same_bits(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return true;
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// How many parameters each rank owns.
StatusOr<std::vector<int>> gather_counts(const JoinedGroup& group, size_t mine,
                                         const SharedNorms::Whole& whole) {
  const auto [endpoint, rank, ranks] = group.member;
  AllGather gather(*endpoint, rank, std::vector<int>(static_cast<size_t>(ranks), 1));
  gather.mine()[0] = static_cast<double>(mine);
  PENSTOCK_RETURN_IF_ERROR(gather.run());
  const auto parameters = static_cast<int64_t>(whole.parameters.size());
  std::vector<int> counts;
  int64_t total = 0;
  for (int r = 0; r < ranks; ++r) {
    const double count = gather.part(RankIndex(r))[0];
    if (!(count >= 0 && count <= static_cast<double>(parameters))) {
      return data_loss("rank {} says that it owns {} of {}'s {} parameters", group.in_job(RankIndex(r)).value,
                       count, whole.name, parameters);
    }
    counts.push_back(static_cast<int>(count));
    total += counts.back();
  }
  if (total >= parameters && total <= parameters * whole.replicas) return counts;
  return data_loss("the ranks own {} parameters together, {} has {}{}", total, whole.name, parameters,
                   whole.replicas > 1 ? fmt::format(", each on at most {} ranks", whole.replicas) : "");
}

// The place of parameter `index` in the whole; behind its end where it is none of it.
size_t place_in(const std::vector<int32_t>& parameters, double index) {
  const auto found = std::lower_bound(parameters.begin(), parameters.end(), index);
  const bool is_there = found != parameters.end() && *found == index;
  return is_there ? static_cast<size_t>(found - parameters.begin()) : parameters.size();
}

}  // namespace

StatusOr<std::unique_ptr<SharedNorms>> SharedNorms::create(const JoinedGroup& group,
                                                           std::span<const int32_t> mine,
                                                           const Whole& whole) {
  const auto [endpoint, rank, ranks] = group.member;
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int> counts, gather_counts(group, mine.size(), whole));
  AllGather gather(*endpoint, rank, std::move(counts));
  std::copy(mine.begin(), mine.end(), gather.mine().begin());
  PENSTOCK_RETURN_IF_ERROR(gather.run());

  std::vector<int> owners(whole.parameters.size());
  std::vector<RankIndex> first(whole.parameters.size());
  std::vector<std::vector<Given>> given(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    for (const double index : gather.part(RankIndex(r))) {
      const size_t place = place_in(whole.parameters, index);
      if (place == owners.size() || owners[place] == whole.replicas) {
        return data_loss("rank {} says that it owns parameter {}, which another owns or {} lacks",
                         group.in_job(RankIndex(r)).value, index, whole.name);
      }
      if (owners[place]++ == 0) first[place] = RankIndex(r);
      given[static_cast<size_t>(r)].push_back({place, first[place]});
    }
  }
  const auto owned = owners.size() - static_cast<size_t>(std::count(owners.begin(), owners.end(), 0));
  if (owned != owners.size())
    return data_loss("the ranks own {} of {}'s {} parameters", owned, whole.name, owners.size());
  std::vector<SquaredNorm> all;
  for (const int32_t parameter : whole.parameters) all.push_back({.parameter = parameter});
  return std::unique_ptr<SharedNorms>(
      new SharedNorms(group, std::move(gather), std::move(given), std::move(all)));
}

StatusOr<std::span<const SquaredNorm>> SharedNorms::gather(std::span<const SquaredNorm> mine) {
  const std::span<double> values = values_.mine();
  PENSTOCK_CHECK_EQ(mine.size(), values.size());
  for (size_t i = 0; i < mine.size(); ++i) values[i] = mine[i].value;
  PENSTOCK_RETURN_IF_ERROR(values_.run());
  for (size_t r = 0; r < given_.size(); ++r) {
    const RankIndex rank(static_cast<int64_t>(r));
    PENSTOCK_RETURN_IF_ERROR(take(rank, values_.part(rank)));
  }
  return std::span<const SquaredNorm>(all_);
}

Status SharedNorms::take(RankIndex rank, std::span<const double> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Given& given = given_[static_cast<size_t>(rank.value)][i];
    SquaredNorm& norm = all_[given.place];
    if (given.first == rank) {
      norm.value = values[i];
    } else if (!have_same_bits(norm.value, values[i])) {
      return data_loss(
          "the gradient of parameter {} has squared norm {} on rank {} and {} on rank {}: the replicas of its "
          "stage would part; their sum over all must have the same bits",
          norm.parameter, norm.value, group_.in_job(given.first).value, values[i], group_.in_job(rank).value);
    }
  }
  return ok_status();
}

}  // namespace penstock::worker
