#include "worker/executor/global_norm.h"

#include <utility>

#include "base/check.h"

namespace penstock::worker {

StatusOr<std::unique_ptr<GlobalNorm>> GlobalNorm::create(Endpoint& endpoint, RankIndex rank, int ranks,
                                                         std::span<const Parameter> mine,
                                                         int64_t model_parameters) {
  AllGather count_gather(endpoint, rank, std::vector<int>(ranks, 1));
  count_gather.mine()[0] = static_cast<double>(mine.size());
  PENSTOCK_RETURN_IF_ERROR(count_gather.run());
  std::vector<int> counts;
  int64_t total = 0;
  for (int r = 0; r < ranks; ++r) {
    const double count = count_gather.part(RankIndex(r))[0];
    if (!(count >= 0 && count <= static_cast<double>(model_parameters))) {
      return data_loss("rank {} says that it owns {} of the model's {} parameters", r, count,
                       model_parameters);
    }
    counts.push_back(static_cast<int>(count));
    total += counts.back();
  }
  if (total != model_parameters) {
    return data_loss("the ranks own {} parameters together, the model has {}", total, model_parameters);
  }

  AllGather gather(endpoint, rank, std::move(counts));
  for (size_t i = 0; i < mine.size(); ++i) gather.mine()[i] = mine[i].spec.index;
  PENSTOCK_RETURN_IF_ERROR(gather.run());
  std::vector<SquaredNorm> all;
  std::vector<bool> owned(static_cast<size_t>(model_parameters));
  for (int r = 0; r < ranks; ++r) {
    for (const double index : gather.part(RankIndex(r))) {
      const bool in_range = index >= 0 && index < static_cast<double>(model_parameters);
      if (!in_range || owned[static_cast<size_t>(index)]) {
        return data_loss("rank {} says that it owns parameter {}, which another owns or the model lacks", r,
                         index);
      }
      owned[static_cast<size_t>(index)] = true;
      all.push_back({.parameter = static_cast<int32_t>(index)});
    }
  }
  return std::unique_ptr<GlobalNorm>(new GlobalNorm(std::move(gather), std::move(all), ranks));
}

StatusOr<double> GlobalNorm::compute(std::span<const SquaredNorm> mine) {
  const std::span<double> values = values_.mine();
  PENSTOCK_CHECK_EQ(mine.size(), values.size());
  for (size_t i = 0; i < mine.size(); ++i) values[i] = mine[i].value;
  PENSTOCK_RETURN_IF_ERROR(values_.run());
  size_t next = 0;
  for (int r = 0; r < ranks_; ++r) {
    for (const double value : values_.part(RankIndex(r))) all_[next++].value = value;
  }
  return norm_.of(all_);
}

}  // namespace penstock::worker
