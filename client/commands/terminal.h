// What the terminal can show, and how a command speaks when something went wrong.
#pragma once

#include <cstdio>
#include <string>

#include "base/status.h"
#include "client/present/progress.h"
#include "plan/render/glyphs.h"

namespace penstock::client {

bool is_terminal(FILE* stream);

// Columns of the terminal; COLUMNS, or 100, where it is none.
int columns_of(FILE* stream);

// Unicode only where the locale says UTF-8.
plan::Glyphs glyphs_of_locale();

ProgressStyle progress_style(FILE* stream);

void print(const std::string& text);  // on stdout

// Prints "penstock: MESSAGE" on stderr and returns the exit code: 2 for what was refused as it stands
// (InvalidArgument, Unimplemented), 1 for everything else.
int report_error(const Status& status);

// A line for the person at the terminal, on stderr.
void say(const std::string& line);

// The whole file. NotFound or Unavailable with its path; OutOfRange over `bytes_max`.
StatusOr<std::string> read_file(const std::string& path, size_t bytes_max);

}  // namespace penstock::client
