#include "client/commands/program_file.h"

#include "client/commands/terminal.h"
#include "plan/interop/schedule_json.h"

namespace penstock::client {
namespace {

constexpr size_t kProgramFileBytesMax = size_t{64} << 20;

}  // namespace

StatusOr<plan::ComputeProgram> read_program_file(const std::string& path) {
  if (path.ends_with(".csv")) {
    return unimplemented(
        "{}: reading torch-csv is not built yet; give the object that `penstock schedule -o json` prints",
        path);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(path, kProgramFileBytesMax));
  return plan::program_from_json(text, path);
}

}  // namespace penstock::client
