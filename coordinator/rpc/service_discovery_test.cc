#include "coordinator/rpc/service_discovery.h"

#include <gtest/gtest.h>

namespace penstock::coordinator {
namespace {

WorkerView worker(const std::string& name, const std::string& state, const std::string& metrics) {
  WorkerView view;
  view.name = name;
  view.state = state;
  view.host = "h1";
  view.metrics_address = metrics;
  return view;
}

TEST(ServiceDiscovery, each_living_daemon_is_one_target) {
  // A daemon with two devices has one page; a lost one would only make the scrape fail.
  EXPECT_EQ(discovery_page({worker("w1", "free", "10.0.0.1:9"), worker("w1", "assigned", "10.0.0.1:9"),
                            worker("w2", "lost", "10.0.0.2:9"), worker("w3", "free", "")}),
            R"([{"labels":{"penstock_host":"h1","penstock_worker":"w1"},"targets":["10.0.0.1:9"]}])");
  EXPECT_EQ(discovery_page(std::vector<WorkerView>()), "[]");
}

TEST(ServiceDiscovery, odd_names_stay_json) {
  const std::string page = discovery_page({worker("w\"\n\xff", "free", "10.0.0.1:9")});
  EXPECT_NE(page.find("w\\\"\\n"), std::string::npos) << page;
}

}  // namespace
}  // namespace penstock::coordinator
