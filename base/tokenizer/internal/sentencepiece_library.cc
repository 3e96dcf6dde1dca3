#include "base/tokenizer/internal/sentencepiece_library.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

namespace penstock::internal {
namespace {

std::string text_of(const sentencepiece::util::Status& status) {
  if (status.ok()) return "";
  const std::string text = status.message();
  return text.empty() ? "SentencePiece gives no reason" : text;
}

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::function<bool(std::string&)>& next) : next_(next) { Next(); }
  bool done() const override { return done_; }
  void Next() override { done_ = !next_(line_); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<bool(std::string&)>& next_;
  std::string line_;
  bool done_ = false;
};

}  // namespace

struct SentencePieceModel::Library {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieceModel::SentencePieceModel() : library_(std::make_unique<Library>()) {}
SentencePieceModel::~SentencePieceModel() = default;

std::string SentencePieceModel::load(std::string_view serialized) {
  return text_of(library_->processor.LoadFromSerializedProto(serialized));
}

int SentencePieceModel::vocabulary() const {
  return library_->processor.GetPieceSize();
}

int SentencePieceModel::end_of_sentence() const {
  return library_->processor.eos_id();
}

std::string SentencePieceModel::encode(std::string_view text, std::vector<int>& tokens) const {
  return text_of(library_->processor.Encode(text, &tokens));
}

std::string SentencePieceModel::decode(const std::vector<int>& tokens, std::string& text) const {
  return text_of(library_->processor.Decode(tokens, &text));
}

std::string train_sentencepiece(const std::unordered_map<std::string, std::string>& options,
                                const std::function<bool(std::string&)>& next_line, std::string& model) {
  Lines lines(next_line);
  return text_of(sentencepiece::SentencePieceTrainer::Train(options, &lines, &model));
}

}  // namespace penstock::internal
