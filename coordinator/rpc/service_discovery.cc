#include "coordinator/rpc/service_discovery.h"

#include <chrono>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

namespace penstock::coordinator {

std::string discovery_page(const std::vector<WorkerView>& workers) {
  nlohmann::json page = nlohmann::json::array();
  std::set<std::string> seen;  // a daemon appears once a device
  for (const WorkerView& worker : workers) {
    if (worker.metrics_address.empty() || worker.state == "lost" || !seen.insert(worker.name).second)
      continue;
    page.push_back({{"targets", {worker.metrics_address}},
                    {"labels", {{"penstock_worker", worker.name}, {"penstock_host", worker.host}}}});
  }
  return page.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string discovery_page(Controller& controller) {
  using Answer = StatusOr<std::vector<WorkerView>>;
  auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> future = promise->get_future();
  controller.list_workers([promise](Answer workers) { promise->set_value(std::move(workers)); });
  if (future.wait_for(std::chrono::seconds(1)) != std::future_status::ready)
    throw std::runtime_error("the controller did not answer within a second");
  const Answer workers = future.get();
  if (!workers.ok()) throw std::runtime_error(message(workers.status()));
  return discovery_page(*workers);
}

}  // namespace penstock::coordinator
