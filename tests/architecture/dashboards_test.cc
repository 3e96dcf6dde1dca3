// Holds the dashboards and alerts to the metrics that the daemons serve: a name that nobody serves draws an empty panel,
// and nobody notices.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace penstock {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> matches_of(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (std::sregex_iterator match(text.begin(), text.end(), regex), end; match != end; ++match) {
    found.insert((*match)[1]);
  }
  return found;
}

// Of the sources of the daemons, tests apart: what `pattern` finds.
std::set<std::string> in_sources(const std::string& pattern) {
  std::set<std::string> found;
  for (const char* room : {"coordinator", "worker", "base/metrics"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(PENSTOCK_SOURCE_DIR) / room)) {
      const std::string name = entry.path().filename();
      if (entry.path().extension() != ".cc" || name.ends_with("_test.cc")) continue;
      found.merge(matches_of(text_of(entry.path()), pattern));
    }
  }
  return found;
}

// A histogram's series carry these behind its name.
std::string family_of(const std::string& series) {
  return std::regex_replace(series, std::regex("_(bucket|sum|count)$"), "");
}

class Dashboards : public ::testing::TestWithParam<std::string> {
 protected:
  fs::path path_ = fs::path(PENSTOCK_SOURCE_DIR) / "dashboards" / GetParam();
};

TEST_P(Dashboards, asks_for_metrics_and_labels_that_are_served) {
  const std::set<std::string> served = in_sources(R"re("(penstock_[a-z_]+)")re");
  const std::set<std::string> labels = in_sources(R"re(\{"([a-z_]+)", )re");
  ASSERT_TRUE(served.contains("penstock_step_seconds")) << "the sources are read wrongly";
  ASSERT_TRUE(labels.contains("stage")) << "the sources are read wrongly";
  const std::string text = text_of(path_);
  const std::set<std::string> asked = matches_of(text, "(penstock_[a-z_]+)");
  ASSERT_FALSE(asked.empty());
  for (const std::string& series : asked) {
    EXPECT_TRUE(served.contains(family_of(series))) << series << ": no daemon serves it";
  }
  for (const std::string& label : matches_of(text, R"re(\{\{([a-z]+)\}\})re")) {
    EXPECT_TRUE(labels.contains(label)) << label << ": no series has this label";
  }
}

INSTANTIATE_TEST_SUITE_P(Files, Dashboards,
                         ::testing::Values("grafana/job.json", "grafana/fleet.json", "prometheus/rules.yml"),
                         [](const auto& tested) {
                           return std::regex_replace(tested.param, std::regex("[^a-z]"), "_");
                         });

TEST(GrafanaDashboards, every_panel_has_a_place_of_its_own_a_query_and_a_number) {
  for (const char* name : {"job.json", "fleet.json"}) {
    const auto dashboard =
        nlohmann::json::parse(text_of(fs::path(PENSTOCK_SOURCE_DIR) / "dashboards" / "grafana" / name));
    std::set<int> ids;
    std::set<std::pair<int, int>> cells;
    for (const auto& panel : dashboard.at("panels")) {
      const std::string title = panel.at("title");
      EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second) << name << ": " << title;
      EXPECT_FALSE(panel.at("targets").empty()) << name << ": " << title;
      const auto& place = panel.at("gridPos");
      for (int x = 0; x < place.at("w"); ++x) {
        for (int y = 0; y < place.at("h"); ++y) {
          const std::pair<int, int> cell(place.at("x").get<int>() + x, place.at("y").get<int>() + y);
          EXPECT_TRUE(cells.insert(cell).second) << name << ": " << title << " lies on another panel";
          EXPECT_LT(cell.first, 24) << name << ": " << title;
        }
      }
    }
    EXPECT_GE(ids.size(), 7u) << name;
  }
}

}  // namespace
}  // namespace penstock
