#include "worker/data/sample_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "worker/data/permutation.h"

namespace penstock::worker {
namespace {

// a x b, or kEndless where that is too large.
int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? SampleOrder::kEndless : result;
}

int64_t sum(int64_t a, int64_t b) {
  int64_t result = 0;
  return __builtin_add_overflow(a, b, &result) ? SampleOrder::kEndless : result;
}

}  // namespace

SampleOrder::SampleOrder(const Options& options) : seed_(options.seed), shuffled_(options.shuffled) {
  PENSTOCK_CHECK(!options.windows.empty());
  for (const int64_t windows : options.windows) {
    PENSTOCK_CHECK(windows >= 1, "{} windows", windows);
    sources_.push_back({.windows = windows});
  }
  share_out(options.weights);
  take_turns();
  if (options.epochs > 0) find_the_end(options.epochs);
}

// Every source one part, the others by weight; what rounding down leaves goes to the largest remainders.
void SampleOrder::share_out(const std::vector<double>& weights) {
  if (sources_.size() == 1) {
    sources_[0].turns = 1;
    return;
  }
  PENSTOCK_CHECK_EQ(weights.size(), sources_.size());
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<double> remainders(weights.size());
  int64_t left = kParts;
  for (size_t i = 0; i < weights.size(); ++i) {
    const double exact = weights[i] / total * static_cast<double>(kParts);
    sources_[i].turns = std::max<int64_t>(1, static_cast<int64_t>(std::floor(exact)));
    remainders[i] = exact - static_cast<double>(sources_[i].turns);
    left -= sources_[i].turns;
  }
  for (; left > 0; --left) {
    const auto most = std::max_element(remainders.begin(), remainders.end());
    ++sources_[most - remainders.begin()].turns;
    *most -= 1;
  }
  for (; left < 0; ++left) {  // sources of tiny weight took their one part from the others
    const auto fewer = [](const Source& a, const Source& b) { return a.turns < b.turns; };
    --std::max_element(sources_.begin(), sources_.end(), fewer)->turns;
  }
}

void SampleOrder::take_turns() {
  int64_t parts = 0;
  for (const Source& source : sources_) parts += source.turns;
  std::vector<int64_t> lacking(sources_.size());
  std::vector<int32_t> taken(sources_.size());
  for (int64_t turn = 0; turn < parts; ++turn) {
    for (size_t i = 0; i < sources_.size(); ++i) lacking[i] += sources_[i].turns;
    const auto next = std::max_element(lacking.begin(), lacking.end()) - lacking.begin();
    pattern_.push_back({static_cast<int32_t>(next), taken[next]});
    lacking[next] -= parts;
    ++taken[next];
  }
  for (size_t i = 0; i < sources_.size(); ++i) PENSTOCK_CHECK_EQ(taken[i], sources_[i].turns);
}

void SampleOrder::find_the_end(int64_t epochs) {
  const auto parts = static_cast<int64_t>(pattern_.size());
  for (int64_t turn = 0; turn < parts; ++turn) {
    const Source& source = sources_[pattern_[turn].source];
    const int64_t supply = product(source.windows, epochs);
    if (supply % source.turns != pattern_[turn].before) continue;
    const int64_t end = sum(product(supply / source.turns, parts), turn);  // of the first that is lacking
    if (end >= samples_) continue;
    samples_ = end;
    first_to_run_out_ = pattern_[turn].source;
  }
}

SampleOrder::Sample SampleOrder::at(int64_t index) const {
  PENSTOCK_CHECK(index >= 0 && index < samples_, "sample {} of {}", index, samples_);
  const auto parts = static_cast<int64_t>(pattern_.size());
  const Turn& turn = pattern_[index % parts];
  const Source& source = sources_[turn.source];
  const int64_t drawn = index / parts * source.turns + turn.before;  // of the source, before this one
  const int64_t position = drawn % source.windows;
  if (!shuffled_) return {turn.source, position};
  const Permutation order({.seed = seed_,
                           .source = static_cast<uint64_t>(turn.source),
                           .epoch = static_cast<uint64_t>(drawn / source.windows)},
                          source.windows);
  return {turn.source, order.at(position)};
}

}  // namespace penstock::worker
