#include "worker/transport/gloo/store.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace penstock::worker {
namespace {

struct StoreItem {
  RankIndex rank;
  std::string item;
};

StoreItem item_of(const std::string& key) {
  constexpr std::string_view kHostPrefix = "rank_";
  std::string_view digits = key;
  const bool host = digits.starts_with(kHostPrefix);
  if (host) digits.remove_prefix(kHostPrefix.size());
  int rank = -1;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size()) {
    throw RendezvousError(
        internal_error("Gloo uses the store key \"{}\", which this release does not know", key));
  }
  return {RankIndex(rank), host ? "host" : "address"};
}

}  // namespace

void RendezvousStore::set(const std::string& key, const std::vector<char>& data) {
  const StoreItem item = item_of(key);
  if (item.item == "address") address_bytes_ = data.size();
  const Status status = rendezvous_.publish(item.rank, item.item, std::string(data.begin(), data.end()));
  if (!status.ok()) throw RendezvousError(status);
}

std::vector<char> RendezvousStore::get(const std::string& key) {
  const std::string& value = look_up(key);
  return {value.begin(), value.end()};
}

void RendezvousStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) look_up(key);
}

// Gloo's own time-out is that of one wait; ours is that of the whole opening.
void RendezvousStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) {
  wait(keys);
}

const std::string& RendezvousStore::look_up(const std::string& key) {
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  const StoreItem item = item_of(key);
  const Duration left = std::max(Duration::zero(), deadline_ - SystemClock().now());
  StatusOr<std::string> value = rendezvous_.look_up(item.rank, item.item, left);
  if (!value.ok()) throw RendezvousError(value.status());
  // Gloo cuts the list into addresses without looking at its size.
  if (item.item == "address" && value->size() != address_bytes_) {
    throw RendezvousError(data_loss("rank {} published an address list of {} bytes, expected {}",
                                    item.rank.value, value->size(), address_bytes_));
  }
  return known_.emplace(key, *std::move(value)).first->second;
}

}  // namespace penstock::worker
