#include "worker/data/sample_set.h"

#include <utility>

#include "base/text.h"

namespace penstock::worker {
namespace {

StatusOr<std::vector<TokenStream>> open_sources(const plan::DataSpec& data) {
  std::vector<TokenStream> sources;
  if (data.weights.empty()) {
    PENSTOCK_ASSIGN_OR_RETURN(TokenStream all, TokenStream::open(data.sources, data));
    sources.push_back(std::move(all));
    return sources;
  }
  for (const std::string& source : data.sources) {
    PENSTOCK_ASSIGN_OR_RETURN(TokenStream one, TokenStream::open(std::span(&source, 1), data));
    sources.push_back(std::move(one));
  }
  return sources;
}

Status check_one_kind(const std::vector<TokenStream>& sources) {
  const auto is_text = [](const TokenStream& source) {
    return source.files().front().format() == TokenFormat::Text;
  };
  for (const TokenStream& source : sources) {
    if (is_text(source) == is_text(sources.front())) continue;
    return invalid_argument("{} and {}: expected text or files of tokens, found both",
                            sources.front().files().front().path(), source.files().front().path());
  }
  return ok_status();
}

StatusOr<SampleSet> opened(StatusOr<SampleSet> set) {
  if (!set.ok()) return with_context(set.status(), "data");
  return set;
}

}  // namespace

StatusOr<SampleSet> SampleSet::open(const plan::DataSpec& data, const Options& options) {
  const auto open = [&]() -> StatusOr<SampleSet> {
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<TokenStream> sources, open_sources(data));
    PENSTOCK_RETURN_IF_ERROR(check_one_kind(sources));
    SampleOrder::Options order{.windows = {},
                               .weights = data.weights,
                               .seed = options.seed,
                               .epochs = data.epochs,
                               .shuffled = options.shuffled};
    for (const TokenStream& source : sources) {
      if (source.tokens() <= data.sequence_length) {
        const std::vector<std::string> paths = source.paths();
        return out_of_range("{} holds {} tokens, one sample needs {} (sequence_length {} and one more)",
                            list_cut(paths), source.tokens(), data.sequence_length + 1, data.sequence_length);
      }
      order.windows.push_back((source.tokens() - 1) / data.sequence_length);
    }
    return SampleSet(std::move(sources), SampleOrder(order), data.sequence_length, options.vocabulary);
  };
  return opened(open());
}

std::string SampleSet::names(int32_t source) const {
  std::vector<std::string> paths;
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (source >= 0 && static_cast<int32_t>(i) != source) continue;
    const std::vector<std::string> of_source = sources_[i].paths();
    paths.insert(paths.end(), of_source.begin(), of_source.end());
  }
  return list_cut(paths);
}

SampleSet::Start SampleSet::start(int64_t index) const {
  const SampleOrder::Sample sample = order_.at(index);
  return {&sources_[sample.source], sample.window * sequence_length_};
}

Status SampleSet::read(int64_t index, std::span<int32_t> window) const {
  const Start from = start(index);
  const Status read = from.source->read(from.token, window, vocabulary_);
  return read.ok() ? read : with_context(read, "data");
}

}  // namespace penstock::worker
