// Log lines on stderr, through spdlog, which stays behind this header (it is slow to compile).
//
// A line carries who it is about: log::info("job {} attempt {}: ...", ...). Log changes, not beats.
// Thread: any.
#pragma once

#include <fmt/format.h>

#include <string>

namespace penstock::log {

enum class Level { Debug, Info, Warning, Error };

// Names the process in every line ("coordinator", "worker-2", "executor") and sets the lowest level shown.
void initialise(const std::string& process_name, Level lowest = Level::Info);

void write(Level level, const std::string& line);

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::Debug, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::Info, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void warning(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::Warning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::Error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace penstock::log
