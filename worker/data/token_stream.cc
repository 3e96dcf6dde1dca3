#include "worker/data/token_stream.h"

#include <glob.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "base/check.h"

namespace penstock::worker {
namespace {

bool is_pattern(const std::string& source) {
  return source.find_first_of("*?[") != std::string::npos;
}

StatusOr<std::vector<std::string>> expand(const std::string& source) {
  if (!is_pattern(source)) return std::vector<std::string>{source};
  glob_t matches{};
  const int result = ::glob(source.c_str(), GLOB_NOSORT | GLOB_ERR, nullptr, &matches);
  const int error_number = errno;
  std::vector<std::string> paths(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  if (result == GLOB_ABORTED) {
    return failed_precondition("a folder of the pattern {} cannot be read: {}", source,
                               std::strerror(error_number));
  }
  if (paths.empty())
    return not_found("no file matches {}; the worker's own file system was searched", source);
  std::sort(paths.begin(), paths.end());  // by bytes: the same on every machine, whatever its locale
  return paths;
}

StatusOr<TokenFileOptions> options_of(const plan::DataSpec& data) {
  TokenFileOptions options;
  PENSTOCK_ASSIGN_OR_RETURN(options.bin_type, token_type_named(data.token_type));
  for (const TokenFormat format :
       {TokenFormat::Text, TokenFormat::Npy, TokenFormat::Bin, TokenFormat::Megatron}) {
    if (data.format == name_of(format)) options.format = format;
  }
  return options;
}

}  // namespace

StatusOr<TokenStream> TokenStream::open(std::span<const std::string> sources, const plan::DataSpec& data) {
  PENSTOCK_ASSIGN_OR_RETURN(const TokenFileOptions options, options_of(data));
  TokenStream stream;
  std::set<std::string> known;
  for (const std::string& source : sources) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> paths, expand(source));
    for (const std::string& path : paths) {
      if (stream.files_.size() == kMostFiles) {
        return resource_exhausted("{} is one file more than the {} that one source may have; join some", path,
                                  kMostFiles);
      }
      PENSTOCK_ASSIGN_OR_RETURN(TokenFile file, TokenFile::open(path, options));
      if (!known.insert(file.path()).second) continue;
      stream.begins_.push_back(stream.tokens_);
      stream.tokens_ += file.tokens();
      stream.files_.push_back(std::move(file));
    }
  }
  PENSTOCK_RETURN_IF_ERROR(stream.check_kinds());
  return stream;
}

// Bytes of text and tokens of some vocabulary mean different things by the same numbers.
Status TokenStream::check_kinds() const {
  const auto is_text = [](const TokenFile& file) { return file.format() == TokenFormat::Text; };
  const auto text = std::find_if(files_.begin(), files_.end(), is_text);
  const auto tokens = std::find_if_not(files_.begin(), files_.end(), is_text);
  if (text == files_.end() || tokens == files_.end()) return ok_status();
  return invalid_argument("{} is text and {} holds tokens: expected files of one kind", text->path(),
                          tokens->path());
}

std::vector<std::string> TokenStream::paths() const {
  std::vector<std::string> paths;
  for (const TokenFile& file : files_) paths.push_back(file.path());
  return paths;
}

size_t TokenStream::file_at(int64_t token) const {
  PENSTOCK_CHECK(token >= 0 && token < tokens_, "token {} of {}", token, tokens_);
  const auto next = std::upper_bound(begins_.begin(), begins_.end(), token);
  return static_cast<size_t>(next - begins_.begin()) - 1;  // the last that begins there: never an empty one
}

TokenStream::Place TokenStream::place(int64_t token) const {
  const size_t file = file_at(token);
  return {&files_[file], token - begins_[file]};
}

Status TokenStream::read(int64_t first, std::span<int32_t> target, int64_t vocabulary) const {
  while (!target.empty()) {
    const Place from = place(first);
    const size_t count = std::min(target.size(), static_cast<size_t>(from.file->tokens() - from.token));
    PENSTOCK_RETURN_IF_ERROR(from.file->read(from.token, target.first(count), vocabulary));
    target = target.subspan(count);
    first += static_cast<int64_t>(count);
  }
  return ok_status();
}

int64_t TokenStream::next_document(int64_t token) const {
  if (token >= tokens_) return tokens_;
  for (size_t file = file_at(token); file < files_.size(); ++file) {
    const int64_t within = std::max<int64_t>(token - begins_[file], 0);
    const int64_t next = files_[file].next_document(within);
    if (next < files_[file].tokens()) return begins_[file] + next;
  }
  return tokens_;
}

}  // namespace penstock::worker
