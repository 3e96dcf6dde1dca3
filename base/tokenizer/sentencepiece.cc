#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/tokenizer/internal/sentencepiece_library.h"
#include "base/tokenizer/tokenizer.h"

namespace penstock {
namespace {

class SentencePiece : public Tokenizer {
 public:
  explicit SentencePiece(std::unique_ptr<internal::SentencePieceModel> model) : model_(std::move(model)) {}

  int64_t vocabulary() const override { return model_->vocabulary(); }
  int32_t end_of_document() const override { return model_->end_of_sentence(); }

  StatusOr<std::vector<int32_t>> encode(std::string_view text) const override {
    std::vector<int> tokens;
    const std::string failure = model_->encode(text, tokens);
    if (!failure.empty()) return internal_error("text of {} bytes: not encoded: {}", text.size(), failure);
    return tokens;
  }

  StatusOr<std::string> decode(std::span<const int32_t> tokens) const override {
    for (const int32_t token : tokens) {
      if (token < 0 || token >= vocabulary())
        return invalid_argument("token {}: expected one from 0 to {}", token, vocabulary() - 1);
    }
    std::string text;
    const std::string failure = model_->decode({tokens.begin(), tokens.end()}, text);
    if (!failure.empty()) return internal_error("{} tokens: not decoded: {}", tokens.size(), failure);
    return text;
  }

 private:
  std::unique_ptr<internal::SentencePieceModel> model_;
};

// Its messages may begin with "src/file.cc(line) [condition] ".
std::string without_place(const std::string& failure) {
  const size_t end = failure.find("] ");
  return end == std::string::npos ? failure : failure.substr(end + 2);
}

std::unordered_map<std::string, std::string> options_of(const SentencePieceTraining& training) {
  return {
      {"vocab_size", fmt::format("{}", training.vocabulary)},
      {"model_type", training.kind},
      // Nothing is lost: no normalisation, every space kept, bytes for what is unknown.
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"add_dummy_prefix", "false"},
      {"byte_fallback", "true"},
      {"allow_whitespace_only_pieces", "true"},
      {"max_sentence_length", fmt::format("{}", kLongestTrainingLine)},
      {"input_sentence_size", fmt::format("{}", training.most_lines)},
      {"shuffle_input_sentence", "true"},
      {"train_extremely_large_corpus", "true"},  // 64-bit offsets
      // Sums are made per thread: another number of threads is another model.
      {"num_threads", "4"},
      {"minloglevel", "2"},
  };
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> load_sentencepiece(std::string_view model) {
  auto loaded = std::make_unique<internal::SentencePieceModel>();
  const std::string failure = model.empty() ? "it is empty" : loaded->load(model);
  if (!failure.empty()) return invalid_argument("expected a SentencePiece model: {}", without_place(failure));
  return std::make_unique<SentencePiece>(std::move(loaded));
}

StatusOr<std::string> train_sentencepiece(const SentencePieceTraining& training) {
  Status reading;
  const auto next_line = [&](std::string& line) {
    const StatusOr<bool> more = training.next_line(line);
    reading = more.status();
    return more.ok() && *more;
  };
  std::string model;
  const std::string failure = internal::train_sentencepiece(options_of(training), next_line, model);
  PENSTOCK_RETURN_IF_ERROR(reading);
  if (!failure.empty()) return invalid_argument("no model was trained: {}", without_place(failure));
  return model;
}

}  // namespace penstock
