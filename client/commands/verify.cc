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

}  // namespace

int verify(const VerifyOptions& options) {
  if (options.format != "auto" && options.format != "json")
    return not_built_yet("verify --format " + options.format);
  const StatusOr<plan::ComputeProgram> program = read_program_file(options.file);
  if (!program.ok()) {
    report_error(program.status());
    return kExitFailed;  // what is no program is no valid one
  }
  const plan::Verdict verdict = plan::verify(*program);
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
