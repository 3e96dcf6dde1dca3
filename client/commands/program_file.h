// A schedule that comes in a file: for `verify` and for the schedule name "file:PATH".
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "plan/interop/torch_csv.h"
#include "plan/schedule/program.h"
#include "plan/verification/verify.h"

namespace penstock::client {

// How to read a file: told by its content, as the JSON that `penstock schedule -o json` prints, or as
// PyTorch's CSV.
enum class ProgramFormat { Auto, Json, TorchCsv, TorchCsvComms };

// A program from outside gets no trust: it comes with what was proved, or with what is wrong.
struct ProgramFile {
  plan::ComputeProgram program;
  plan::Verdict verdict;
};

// NotFound when it cannot be opened; InvalidArgument, with the path and the place, when the text is no JSON
// of a program. What is wrong with a CSV stands in the verdict, with rank and cell.
StatusOr<ProgramFile> read_program_file(const std::string& path, ProgramFormat format = ProgramFormat::Auto);

}  // namespace penstock::client
