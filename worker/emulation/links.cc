#include "worker/emulation/links.h"

#include <algorithm>
#include <cstring>

namespace penstock::worker {
namespace {

// Nothing that is sent now was due, or is due, further away than this.
constexpr Duration kPlausible = std::chrono::hours(24);

}  // namespace

EmulatedLinks::EmulatedLinks(Endpoint& carrier, EmulatedDevice& device, const EmulatedLinkOptions& options)
    : carrier_(carrier),
      device_(device),
      options_(options),
      out_free_since_(static_cast<size_t>(options.ranks)),
      in_free_since_(static_cast<size_t>(options.ranks)) {}

Status EmulatedLinks::open(const Group&, Rendezvous&, Duration) {
  return failed_precondition("emulated links: they stand on an endpoint that is open");
}

Status EmulatedLinks::drain() {
  return failed_precondition("emulated links: the endpoint that they stand on is drained by its owner");
}

Status EmulatedLinks::check(RankIndex peer, int64_t bytes) const {
  if (peer.value >= 0 && peer.value < options_.ranks && bytes >= kLeastBytes && bytes <= kMostBytes)
    return ok_status();
  return invalid_argument("emulated link: expected {} to {} bytes with rank 0 to {}, found {} with rank {}",
                          kLeastBytes, kMostBytes, options_.ranks - 1, bytes, peer.value);
}

int64_t EmulatedLinks::take() {
  if (free_.empty()) {
    transfers_.emplace_back();
    free_.push_back(static_cast<int64_t>(transfers_.size()) - 1);
  }
  const int64_t id = free_.back();
  free_.pop_back();
  transfers_[static_cast<size_t>(id)].in_use = true;
  return id;
}

void EmulatedLinks::give_back(int64_t id) {
  transfers_[static_cast<size_t>(id)].in_use = false;
  free_.push_back(id);
}

TimePoint EmulatedLinks::pass(TimePoint& link_free_since) {
  return link_free_since = std::max(link_free_since, device_.time()) + options_.occupancy;
}

StatusOr<TransferId> EmulatedLinks::post_send(RankIndex target, const void*, int64_t bytes) {
  PENSTOCK_RETURN_IF_ERROR(check(target, bytes));
  const int64_t id = take();
  Transfer& transfer = transfers_[static_cast<size_t>(id)];
  transfer.is_receive = false;
  transfer.left = pass(out_free_since_[static_cast<size_t>(target.value)]);
  transfer.sent.resize(static_cast<size_t>(bytes));
  const int64_t left_ns = transfer.left.time_since_epoch().count();
  std::memcpy(transfer.sent.data(), &left_ns, sizeof(left_ns));
  return keep(id, carrier_.post_send(target, transfer.sent.data(), bytes));
}

StatusOr<TransferId> EmulatedLinks::post_receive(RankIndex source, void* data, int64_t bytes) {
  PENSTOCK_RETURN_IF_ERROR(check(source, bytes));
  const int64_t id = take();
  Transfer& transfer = transfers_[static_cast<size_t>(id)];
  transfer.is_receive = true;
  transfer.left = pass(in_free_since_[static_cast<size_t>(source.value)]);
  transfer.message = data;
  return keep(id, carrier_.post_receive(source, data, bytes));
}

// The id under which the caller knows it.
StatusOr<TransferId> EmulatedLinks::keep(int64_t id, const StatusOr<TransferId>& carried) {
  if (!carried.ok()) {
    give_back(id);
    return carried.status();
  }
  transfers_[static_cast<size_t>(id)].carried = *carried;
  return TransferId{id};
}

Status EmulatedLinks::wait(TransferId id) {
  const bool known = id.value >= 0 && id.value < static_cast<int64_t>(transfers_.size());
  if (!known || !transfers_[static_cast<size_t>(id.value)].in_use) {
    return invalid_argument("transfer {} is unknown or was waited for before", id.value);
  }
  const Transfer& transfer = transfers_[static_cast<size_t>(id.value)];
  const TimePoint began = device_.clock_now();
  Status status = carrier_.wait(transfer.carried);
  if (status.ok() && transfer.is_receive) status = end_receive(transfer);
  if (status.ok() && !transfer.is_receive) end_send(transfer, began);
  give_back(id.value);
  return status;
}

Status EmulatedLinks::end_receive(const Transfer& transfer) {
  int64_t left_ns = 0;
  std::memcpy(&left_ns, transfer.message, sizeof(left_ns));
  const TimePoint now = device_.clock_now();
  const TimePoint left_sender{Duration(left_ns)};
  if (left_sender < now - kPlausible || left_sender > now + kPlausible) {
    return data_loss(
        "emulated link: a message left at {} ns of the host's clock, which reads {} ns: expected ranks that share a "
        "clock and talk of nothing else here",
        left_ns, now.time_since_epoch().count());
  }
  device_.reach(std::max(left_sender, transfer.left) + options_.latency);
  return ok_status();
}

void EmulatedLinks::end_send(const Transfer& transfer, TimePoint began) {
  device_.hold_up(device_.clock_now() - began);
  device_.reach(transfer.left);
}

}  // namespace penstock::worker
