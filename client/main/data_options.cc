#include "client/main/data_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "client/commands/commands.h"
#include "client/main/help.h"

namespace penstock::client {
namespace {

void declare_inspect(CLI::App& command, DataInspectOptions& options) {
  command.add_option("files", options.files, "Files of tokens, or of text")->required()->type_name("FILE...");
  command.add_option("--vocab-size", options.vocabulary, "Every token must be below it")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 22));
  command.add_option("--sequence-length", options.sequence_length, "Count the samples of so many tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command.add_option("--end-of-document", options.end_of_document, "Count the documents that it ends")
      ->type_name("TOKEN");
  command.add_option("--format", options.format, "Format; auto goes by each file's name")
      ->check(CLI::IsMember({"auto", "text", "npy", "bin", "megatron"}))
      ->capture_default_str();
  command.add_option("--token-type", options.token_type, "Of .bin files without an index")
      ->check(CLI::IsMember({"uint16", "uint32"}))
      ->capture_default_str();
  command.add_option("-o,--output", options.output, "Format of the result")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace

void add_data(CLI::App& app, int& result) {
  CLI::App* data = app.add_subcommand(help_of_data().name, help_of_data().summary);
  data->footer(help_of_data().examples);
  data->require_subcommand(1);

  CLI::App* inspect = data->add_subcommand(help_of_data_inspect().name, help_of_data_inspect().summary);
  inspect->footer(help_of_data_inspect().examples);
  const auto options = std::make_shared<DataInspectOptions>();
  declare_inspect(*inspect, *options);
  inspect->callback([options, &result] { result = data_inspect(*options); });

  // The other program parses what follows, --help as well.
  CLI::App* prepare = data->add_subcommand("prepare", "Train a tokenizer; make a file of tokens of text");
  prepare->prefix_command();
  prepare->set_help_flag();
  prepare->callback([prepare, &result] { result = data_prepare(prepare->remaining()); });
}

}  // namespace penstock::client
