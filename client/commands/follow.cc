#include "client/commands/follow.h"

#include "base/clock.h"
#include "client/commands/terminal.h"
#include "client/present/progress.h"

namespace penstock::client {

StatusOr<v1::Job> follow(Coordinator& coordinator, const std::string& name, FILE* stream) {
  const SystemClock clock;
  ProgressPrinter printer(progress_style(stream));
  const auto see = [&](const v1::Job& job) {
    const std::string text = printer.next(job, clock.now());
    std::fwrite(text.data(), 1, text.size(), stream);
    std::fflush(stream);
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
