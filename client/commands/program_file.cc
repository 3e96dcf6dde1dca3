#include "client/commands/program_file.h"

#include <utility>

#include "base/text.h"
#include "client/commands/terminal.h"
#include "plan/interop/schedule_json.h"

namespace penstock::client {
namespace {

constexpr size_t kProgramFileBytesMax = size_t{64} << 20;

ProgramFile proved(plan::ComputeProgram program) {
  plan::Verdict verdict = plan::verify(program);
  return {std::move(program), std::move(verdict)};
}

ProgramFile from_torch_csv(const std::string& text, const std::string& path,
                           std::optional<plan::TorchFormat> expected) {
  plan::TorchImport import = plan::import_torch_csv(text, path, expected);
  if (import.violations.empty()) return proved(std::move(import.program));
  plan::Verdict verdict;
  verdict.violations = std::move(import.violations);
  return {std::move(import.program), std::move(verdict)};
}

ProgramFormat format_of(const std::string& text) {
  const std::string_view trimmed = trim(text);
  return trimmed.starts_with('{') || trimmed.starts_with('[') ? ProgramFormat::Json : ProgramFormat::Auto;
}

}  // namespace

StatusOr<ProgramFile> read_program_file(const std::string& path, ProgramFormat format) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, read_file(path, kProgramFileBytesMax));
  switch (format == ProgramFormat::Auto ? format_of(text) : format) {
    case ProgramFormat::Json: {
      PENSTOCK_ASSIGN_OR_RETURN(plan::ComputeProgram program, plan::program_from_json(text, path));
      return proved(std::move(program));
    }
    case ProgramFormat::Auto:
      return from_torch_csv(text, path, std::nullopt);
    case ProgramFormat::TorchCsv:
      return from_torch_csv(text, path, plan::TorchFormat::ComputeOnly);
    case ProgramFormat::TorchCsvComms:
      return from_torch_csv(text, path, plan::TorchFormat::ComputeComms);
  }
  return internal_error("format {}", static_cast<int>(format));
}

}  // namespace penstock::client
