// How `--help` says what an option takes: "--workers 1..1024", "-o,--output {text,json}=text", where CLI11 would say "INT:INT in
// [1 - 1024]" and "TEXT:{text,json}=text".
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace penstock::client {

// "1..1024" of "INT:INT in [1 - 1024]", "{text,json}" of "TEXT:{text,json}"; other words stay.
std::string value_words(const std::string& type_name);

class HelpFormat final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
};

}  // namespace penstock::client
