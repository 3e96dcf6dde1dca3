// The SentencePiece library behind plain types. Its headers define a string_view in namespace absl, which
// Debian's Abseil does too: no file may see both. Errors are texts, "" where there is none.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace penstock::internal {

class SentencePieceModel {
 public:
  SentencePieceModel();
  ~SentencePieceModel();
  std::string load(std::string_view serialized);

  int vocabulary() const;
  int end_of_sentence() const;  // -1: none
  std::string encode(std::string_view text, std::vector<int>& tokens) const;
  std::string decode(const std::vector<int>& tokens, std::string& text) const;

 private:
  struct Library;
  std::unique_ptr<Library> library_;
};

// `next_line` returns false behind the last line. Options as spm_train's, without dashes.
std::string train_sentencepiece(const std::unordered_map<std::string, std::string>& options,
                                const std::function<bool(std::string&)>& next_line, std::string& model);

}  // namespace penstock::internal
