#include "client/help_format/help_format.h"

#include <gtest/gtest.h>

namespace penstock::client {
namespace {

TEST(HelpFormat, bounds_and_choices_stand_without_the_parsers_words) {
  EXPECT_EQ(value_words("INT:INT in [1 - 1024]"), "1..1024");
  EXPECT_EQ(value_words("FLOAT:FLOAT in [0 - 3600]"), "0..3600");
  EXPECT_EQ(value_words("TEXT:{text,json}"), "{text,json}");
  EXPECT_EQ(value_words("TEXT:INT|auto"), "INT|auto");
  EXPECT_EQ(value_words("INT:NONNEGATIVE"), "0..");
  EXPECT_EQ(value_words("JOB.yaml"), "JOB.yaml");
}

TEST(HelpFormat, an_option_says_its_value_its_default_and_what_it_goes_with) {
  CLI::App app;
  app.formatter(std::make_shared<HelpFormat>());
  int ranks = 2;
  std::vector<std::string> files;
  const auto* file = app.add_option("files", files, "Files")->type_name("FILE...");
  app.add_option("-p,--pipeline", ranks, "Ranks")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str()
      ->excludes(app.get_option("files"));
  const std::string help = app.help();
  EXPECT_NE(help.find("-p,--pipeline 1..4096=2 (not with files)"), std::string::npos) << help;
  EXPECT_NE(help.find("files FILE... "), std::string::npos) << help;
  EXPECT_EQ(help.find("... ..."), std::string::npos) << help;
  EXPECT_EQ(file->get_name(), "files");
}

}  // namespace
}  // namespace penstock::client
