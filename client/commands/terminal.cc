#include "client/commands/terminal.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "client/present/job_words.h"

namespace penstock::client {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const char* kind_of(const struct stat& about) {
  if (S_ISDIR(about.st_mode)) return "a directory";
  return S_ISFIFO(about.st_mode) ? "a pipe" : "a device or socket";
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

bool print_on(FILE* stream, const std::string& text) {
  if (std::ferror(stream) != 0) return false;
  errno = 0;
  const bool taken = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  if (taken && std::fflush(stream) == 0) return true;
  if (errno != EPIPE) say(fmt::format("penstock: cannot write: {}", std::strerror(errno)));
  return false;
}

bool print(const std::string& text) {
  return print_on(stdout, text);
}

bool output_written() {
  return print("");
}

void say(const std::string& text) {
  std::string lines;
  for (const std::string& line : split_on(text, '\n')) lines += plan::printable(line) + "\n";
  std::fwrite(lines.data(), 1, lines.size(), stderr);
  std::fflush(stderr);
}

int report_error(const Status& status) {
  say("penstock: " + message(status));
  const bool refused =
      status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kUnimplemented;
  return refused ? kExitRefused : kExitFailed;
}

StatusOr<std::string> read_file(const std::string& path, size_t bytes_max) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) return not_found("{}: cannot open it: {}", path, std::strerror(errno));
  struct stat about {};
  if (fstat(file.get(), &about) != 0)
    return unavailable("{}: cannot read it: {}", path, std::strerror(errno));
  if (!S_ISREG(about.st_mode))
    return invalid_argument("{}: expected a regular file, found {}", path, kind_of(about));
  std::string text;
  std::vector<char> buffer(64 << 10);
  while (true) {
    const ssize_t count = read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return unavailable("{}: cannot read it: {}", path, std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
    if (text.size() > bytes_max)
      return out_of_range("{}: expected at most {} bytes, found more", path, bytes_max);
  }
}

}  // namespace penstock::client
