#include "worker/executor/global_norm.h"

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
StatusOr<std::vector<int>> gather_counts(Endpoint& endpoint, RankIndex rank, int ranks, size_t mine,
                                         const GlobalNorm::Whole& whole) {
  AllGather gather(endpoint, rank, std::vector<int>(static_cast<size_t>(ranks), 1));
  gather.mine()[0] = static_cast<double>(mine);
  PENSTOCK_RETURN_IF_ERROR(gather.run());
  std::vector<int> counts;
  int64_t total = 0;
  for (int r = 0; r < ranks; ++r) {
    const double count = gather.part(RankIndex(r))[0];
    if (!(count >= 0 && count <= static_cast<double>(whole.parameters))) {
      return data_loss("rank {} says that it owns {} of the model's {} parameters", r, count,
                       whole.parameters);
    }
    counts.push_back(static_cast<int>(count));
    total += counts.back();
  }
  if (total >= whole.parameters && total <= whole.parameters * whole.replicas) return counts;
  return data_loss("the ranks own {} parameters together, the model has {}{}", total, whole.parameters,
                   whole.replicas > 1 ? fmt::format(", each on at most {} ranks", whole.replicas) : "");
}

}  // namespace

StatusOr<std::unique_ptr<GlobalNorm>> GlobalNorm::create(Endpoint& endpoint, RankIndex rank, int ranks,
                                                         std::span<const Parameter> mine,
                                                         const Whole& whole) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int> counts,
                            gather_counts(endpoint, rank, ranks, mine.size(), whole));
  AllGather gather(endpoint, rank, std::move(counts));
  for (size_t i = 0; i < mine.size(); ++i) gather.mine()[i] = mine[i].spec.index;
  PENSTOCK_RETURN_IF_ERROR(gather.run());

  struct Owned {
    int owners = 0;
    Given given;
  };
  std::vector<Owned> owned(static_cast<size_t>(whole.parameters));
  std::vector<SquaredNorm> all;
  std::vector<std::vector<Given>> given(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    for (const double index : gather.part(RankIndex(r))) {
      const bool in_range = index >= 0 && index < static_cast<double>(whole.parameters);
      if (!in_range || owned[static_cast<size_t>(index)].owners == whole.replicas) {
        return data_loss("rank {} says that it owns parameter {}, which another owns or the model lacks", r,
                         index);
      }
      Owned& parameter = owned[static_cast<size_t>(index)];
      if (parameter.owners++ == 0) {
        parameter.given = {all.size(), RankIndex(r)};
        all.push_back({.parameter = static_cast<int32_t>(index)});
      }
      given[static_cast<size_t>(r)].push_back(parameter.given);
    }
  }
  if (static_cast<int64_t>(all.size()) != whole.parameters) {
    return data_loss("the ranks own {} of the model's {} parameters", all.size(), whole.parameters);
  }
  return std::unique_ptr<GlobalNorm>(new GlobalNorm(std::move(gather), std::move(given), std::move(all)));
}

StatusOr<double> GlobalNorm::compute(std::span<const SquaredNorm> mine) {
  const std::span<double> values = values_.mine();
  PENSTOCK_CHECK_EQ(mine.size(), values.size());
  for (size_t i = 0; i < mine.size(); ++i) values[i] = mine[i].value;
  PENSTOCK_RETURN_IF_ERROR(values_.run());
  for (size_t r = 0; r < given_.size(); ++r) {
    const std::span<const double> part = values_.part(RankIndex(static_cast<int64_t>(r)));
    for (size_t i = 0; i < part.size(); ++i) {
      const Given& given = given_[r][i];
      SquaredNorm& norm = all_[given.parameter];
      if (given.first == RankIndex(static_cast<int64_t>(r))) {
        norm.value = part[i];
      } else if (!have_same_bits(norm.value, part[i])) {
        return data_loss(
            "the gradient of parameter {} has squared norm {} on rank {} and {} on rank {}: the replicas of its "
            "stage would part; their sum over both must have the same bits",
            norm.parameter, norm.value, given.first.value, part[i], r);
      }
    }
  }
  return norm_.of(all_);
}

}  // namespace penstock::worker
