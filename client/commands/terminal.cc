#include "client/commands/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "client/present/job_words.h"

namespace penstock::client {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

constexpr int kColumnsWithoutTerminal = 100;
constexpr int kColumnsMax = 1000;

}  // namespace

bool is_terminal(FILE* stream) {
  return isatty(fileno(stream)) == 1;
}

int columns_of(FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::min<int>(size.ws_col, kColumnsMax);
  const std::string text = environment("COLUMNS");
  int columns = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), columns);
  const bool usable = failure == std::errc() && columns > 0 && columns <= kColumnsMax;
  return usable ? columns : kColumnsWithoutTerminal;
}

plan::Glyphs glyphs_of_locale() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = environment(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    const bool utf8 = value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
    return utf8 ? plan::Glyphs::Unicode : plan::Glyphs::Ascii;
  }
  return plan::Glyphs::Ascii;
}

ProgressStyle progress_style(FILE* stream) {
  ProgressStyle style;
  style.terminal = is_terminal(stream) && environment("TERM") != "dumb";
  style.width = std::max(columns_of(stream) - 1, 20);  // the last column makes some terminals wrap
  style.glyphs = glyphs_of_locale();
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_row > 0) {
    style.stages_max = std::clamp<int>(size.ws_row - 4, 0, style.stages_max);
  }
  return style;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void say(const std::string& line) {
  std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
}

int report_error(const Status& status) {
  say("penstock: " + message(status));
  const bool refused =
      status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kUnimplemented;
  return refused ? kExitRefused : kExitFailed;
}

StatusOr<std::string> read_file(const std::string& path, size_t bytes_max) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("{}: cannot open it: {}", path, std::strerror(errno));
  std::string text;
  char buffer[64 << 10];
  while (file.read(buffer, sizeof(buffer)) || file.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(file.gcount()));
    if (text.size() > bytes_max)
      return out_of_range("{}: expected at most {} bytes, found more", path, bytes_max);
  }
  if (file.bad()) return unavailable("{}: cannot read it: {}", path, std::strerror(errno));
  return text;
}

}  // namespace penstock::client
