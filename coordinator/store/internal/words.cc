#include "coordinator/store/internal/words.h"

#include <charconv>
#include <optional>
#include <utility>

#include "base/text.h"

namespace penstock::coordinator {
namespace {

StatusOr<std::optional<int64_t>> read_bytes(const std::string& word) {
  if (word == "-") return std::optional<int64_t>();
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), bytes);
  if (error == std::errc() && end == word.data() + word.size()) return std::optional(bytes);
  return data_loss("memory: expected bytes, or - where they are not known, found \"{}\"", word);
}

}  // namespace

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string kinds_text(const RankMemoryView& rank) {
  std::vector<std::string> words;
  const auto count = [](const std::optional<int64_t>& bytes) {
    return bytes ? fmt::format("{}", *bytes) : "-";
  };
  for (const MemoryUseView& use : rank) {
    for (std::string word : {use.kind, count(use.predicted_bytes), count(use.peak_bytes)})
      words.push_back(std::move(word));
  }
  return joined(words);
}

StatusOr<RankMemoryView> read_kinds(const std::string& text) {
  RankMemoryView rank;
  const std::vector<std::string> words = text.empty() ? std::vector<std::string>() : split_on(text, ' ');
  if (words.size() % 3 != 0) return data_loss("memory: expected three words a kind, found \"{}\"", text);
  for (size_t i = 0; i < words.size(); i += 3) {
    MemoryUseView use{.kind = words[i]};
    PENSTOCK_ASSIGN_OR_RETURN(use.predicted_bytes, read_bytes(words[i + 1]));
    PENSTOCK_ASSIGN_OR_RETURN(use.peak_bytes, read_bytes(words[i + 2]));
    rank.push_back(std::move(use));
  }
  return rank;
}

}  // namespace penstock::coordinator
