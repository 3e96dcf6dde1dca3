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

// Writes at once. False when the text could not be written: said on stderr, once a stream, except that the
// reader of a pipe has gone away. A command that goes on printing ends then.
bool print_on(FILE* stream, const std::string& text);
bool print(const std::string& text);  // on stdout

// Whether everything that was printed on stdout has been written; without it no command exits with 0.
bool output_written();

// Prints "penstock: MESSAGE" on stderr and returns the exit code: 2 for what was refused as it stands
// (InvalidArgument, Unimplemented), 1 for everything else.
int report_error(const Status& status);

// A line for the person at the terminal, or several, on stderr. Control characters, which come from files and
// peers, are shown as '?'.
void say(const std::string& text);

// The whole of a regular file: a pipe or a device could wait, or go on, for ever. Errors begin with the path:
// NotFound or Unavailable when it cannot be read, InvalidArgument when it is no regular file, OutOfRange over
// `bytes_max`.
StatusOr<std::string> read_file(const std::string& path, size_t bytes_max);

}  // namespace penstock::client
