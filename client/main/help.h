// What `--help` says beyond the options: a summary and examples for every command.
#pragma once

#include <string>

namespace penstock::client {

struct Help {
  const char* name;
  const char* summary;
  const char* examples;
};

Help help_of_up();
Help help_of_submit();
Help help_of_get();
Help help_of_describe();
Help help_of_watch();
Help help_of_logs();
Help help_of_trace();
Help help_of_cancel();
Help help_of_drain();
Help help_of_uncordon();
Help help_of_pause();
Help help_of_resume();
Help help_of_schedule();
Help help_of_verify();
Help help_of_partition();
Help help_of_plan();
Help help_of_fit();
Help help_of_curves();
Help help_of_rebalance();
Help help_of_diagnose();
Help help_of_data();
Help help_of_data_inspect();
Help help_of_layout();
Help help_of_layout_parse();
Help help_of_layout_format();
Help help_of_checkpoint();
Help help_of_checkpoint_verify();
Help help_of_checkpoint_import();
Help help_of_checkpoint_export();
Help help_of_checkpoint_list();

std::string overview_examples();
std::string schedule_names_text();  // those that this version builds, separated by commas

}  // namespace penstock::client
