#include "plan/verification/verify.h"

#include "client/commands/commands.h"
#include "client/commands/program_file.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "plan/interop/schedule_json.h"

namespace penstock::client {
namespace {

std::string verdict_text(const std::string& file, const plan::Verdict& verdict) {
  if (verdict.valid()) {
    std::string slots;
    for (const int count : verdict.high_water) slots += fmt::format("{}{}", slots.empty() ? "" : ",", count);
    return fmt::format("{}: valid; payload slots {}; {}\n", file, slots,
                       verdict.bit_identical ? "weight gradients accumulate in microbatch order"
                                             : "weight gradients do not accumulate in microbatch order");
  }
  std::string text = fmt::format("{}: invalid\n", file);
  for (const plan::Violation& violation : verdict.violations) text += "  " + violation.to_string() + "\n";
  return text;
}

ProgramFormat format_named(const std::string& name) {
  if (name == "json") return ProgramFormat::Json;
  if (name == "torch-csv") return ProgramFormat::TorchCsv;
  return name == "torch-csv-comms" ? ProgramFormat::TorchCsvComms : ProgramFormat::Auto;
}

// What is no program is no valid one: for those who read the verdict, its reason is a violation like others.
int no_program(const VerifyOptions& options, const Status& status) {
  if (options.output == "json" && status.code() == StatusCode::kInvalidArgument) {
    plan::Verdict verdict;
    verdict.violations.push_back({"format", RankIndex(), -1, "", message(status)});
    print(plan::verdict_to_json(verdict));
  }
  report_error(status);
  return kExitFailed;
}

}  // namespace

int verify(const VerifyOptions& options) {
  const StatusOr<ProgramFile> file = read_program_file(options.file, format_named(options.format));
  if (!file.ok()) return no_program(options, file.status());
  const plan::Verdict& verdict = file->verdict;
  if (options.output == "json") {
    print(plan::verdict_to_json(verdict));
  } else if (verdict.valid()) {
    print(verdict_text(options.file, verdict));
  } else {
    say("penstock: " + verdict_text(options.file, verdict));
  }
  return verdict.valid() ? kExitSucceeded : kExitFailed;
}

}  // namespace penstock::client
