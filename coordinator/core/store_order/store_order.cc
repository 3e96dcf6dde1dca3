#include "coordinator/core/store_order/store_order.h"

#include <algorithm>

namespace penstock::coordinator {

void StoreOrder::after(Ticket ticket, Continuation what) {
  auto later = std::upper_bound(held_.begin(), held_.end(), ticket,
                                [](Ticket wanted, const auto& entry) { return wanted < entry.first; });
  held_.emplace(later, ticket, std::move(what));
}

std::vector<Continuation> StoreOrder::durable(Ticket ticket) {
  durable_ = std::max(durable_, std::min(ticket, last_));
  std::vector<Continuation> released;
  while (!held_.empty() && held_.front().first <= durable_) {
    released.push_back(std::move(held_.front().second));
    held_.pop_front();
  }
  return released;
}

}  // namespace penstock::coordinator
