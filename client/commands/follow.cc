#include "client/commands/follow.h"

#include "base/clock.h"
#include "client/commands/terminal.h"
#include "client/present/progress.h"

namespace penstock::client {

StatusOr<v1::Job> follow(Coordinator& coordinator, const std::string& name, FILE* stream,
                         v1::Job* last_seen) {
  const SystemClock clock;
  ProgressPrinter printer(progress_style(stream));
  const auto see = [&](const v1::Job& job) {
    if (last_seen != nullptr) *last_seen = job;
    // Progress is the result of `watch` only; beside a result it may get lost.
    if (!print_on(stream, printer.next(job, clock.now())) && stream == stdout) coordinator.stop();
  };
  const auto away = [](const Status& status) { say("penstock: " + message(status) + "; trying again"); };
  return coordinator.watch(name, see, away);
}

StatusOr<std::unique_ptr<Coordinator>> connect(const std::string& from_command_line) {
  return Coordinator::at(coordinator_address(from_command_line));
}

std::string useful_commands(const std::string& job, const std::string& flag) {
  std::string text = "Useful commands:\n";
  text += fmt::format("  penstock watch {}{}\n", job, flag);
  text += fmt::format("  penstock describe job {}{}\n", job, flag);
  text += fmt::format("  penstock logs {} -f{}\n", job, flag);
  text += fmt::format("  penstock get job {} -o json{}\n", job, flag);
  text += fmt::format("  penstock cancel {}{}\n", job, flag);
  return text;
}

}  // namespace penstock::client
