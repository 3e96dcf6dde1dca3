#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/token_files/token_file.h"
#include "client/commands/commands.h"
#include "client/commands/terminal.h"
#include "client/commands/work_progress.h"
#include "client/present/job_words.h"
#include "plan/render/human.h"

namespace penstock::client {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kAnyToken = int64_t{1} << 31;
constexpr int64_t kTokensAtOnce = 1 << 16;

struct Inspected {
  TokenFormat format = TokenFormat::Text;
  TokenType type = TokenType::UInt8;
  int64_t bytes = 0;
  int64_t tokens = 0;
  int32_t smallest = std::numeric_limits<int32_t>::max();
  int32_t largest = -1;
  std::optional<int64_t> documents;  // of the index, or ended by the token that was given
};

StatusOr<TokenFileOptions> file_options(const DataInspectOptions& options) {
  TokenFileOptions wanted;
  PENSTOCK_ASSIGN_OR_RETURN(wanted.bin_type, token_type_named(options.token_type));
  for (const TokenFormat format :
       {TokenFormat::Text, TokenFormat::Npy, TokenFormat::Bin, TokenFormat::Megatron}) {
    if (options.format == name_of(format)) wanted.format = format;
  }
  return wanted;
}

// Reads every token.
StatusOr<Inspected> inspect(const std::string& path, const DataInspectOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const TokenFileOptions wanted, file_options(options));
  PENSTOCK_ASSIGN_OR_RETURN(const TokenFile file, TokenFile::open(path, wanted));
  Inspected found{.format = file.format(),
                  .type = file.type(),
                  .bytes = file.bytes(),
                  .tokens = file.tokens(),
                  .documents = file.documents()};
  if (options.end_of_document && !found.documents) found.documents = 0;
  WorkProgress progress = WorkProgress::of_bytes("inspect " + path, file.tokens() * bytes_of(file.type()));
  std::vector<int32_t> tokens(static_cast<size_t>(std::min(kTokensAtOnce, file.tokens())));
  for (int64_t first = 0; first < file.tokens(); first += kTokensAtOnce) {
    tokens.resize(static_cast<size_t>(std::min(kTokensAtOnce, file.tokens() - first)));
    PENSTOCK_RETURN_IF_ERROR(file.read(first, tokens, options.vocabulary.value_or(kAnyToken)));
    const auto [smallest, largest] = std::minmax_element(tokens.begin(), tokens.end());
    found.smallest = std::min(found.smallest, *smallest);
    found.largest = std::max(found.largest, *largest);
    if (options.end_of_document && !file.documents()) {
      *found.documents += std::count(tokens.begin(), tokens.end(), *options.end_of_document);
    }
    progress.add(static_cast<int64_t>(tokens.size()) * bytes_of(file.type()));
  }
  return found;
}

// Samples of a job: windows of one token more than they train on.
std::optional<int64_t> samples_of(const Inspected& found, const DataInspectOptions& options) {
  if (options.sequence_length == 0) return std::nullopt;
  return found.tokens == 0 ? 0 : (found.tokens - 1) / options.sequence_length;
}

std::string text_of(const std::string& path, const Inspected& found, const DataInspectOptions& options) {
  std::string text = fmt::format("{}: {}, {}, {}\n  {}", path, name_of(found.format), name_of(found.type),
                                 plan::human_bytes(found.bytes), plan::counted(found.tokens, "token"));
  if (found.tokens > 0) text += fmt::format(" from {} to {}", found.smallest, found.largest);
  if (found.documents) text += ", " + plan::counted(*found.documents, "document");
  if (const auto samples = samples_of(found, options)) {
    text += fmt::format(", {} of {} tokens", plan::counted(*samples, "sample"), options.sequence_length);
  }
  return text + "\n";
}

Json json_of(const std::string& path, const Inspected& found, const DataInspectOptions& options) {
  Json json{{"file", path},
            {"format", name_of(found.format)},
            {"token_type", name_of(found.type)},
            {"bytes", found.bytes},
            {"tokens", found.tokens}};
  if (found.tokens > 0) {
    json["smallest"] = found.smallest;
    json["largest"] = found.largest;
  }
  if (found.documents) json["documents"] = *found.documents;
  if (const auto samples = samples_of(found, options)) json["samples"] = *samples;
  return json;
}

}  // namespace

int data_inspect(const DataInspectOptions& options) {
  const bool as_json = options.output == "json";
  bool sound = true;
  Json all = Json::array();
  for (const std::string& path : options.files) {
    const StatusOr<Inspected> found = inspect(path, options);
    if (!found.ok()) {
      sound = false;
      report_error(found.status());
      all.push_back({{"file", path}, {"error", message(found.status())}});
    } else if (as_json) {
      all.push_back(json_of(path, *found, options));
    } else if (!print(text_of(path, *found, options))) {
      return kExitFailed;
    }
  }
  // A path is any bytes.
  if (as_json) print(all.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  return sound ? kExitSucceeded : kExitFailed;
}

}  // namespace penstock::client
