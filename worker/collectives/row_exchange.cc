#include "worker/collectives/row_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"

namespace penstock::worker {
namespace {

using kernels::Dispatch;
using kernels::TensorView;

int64_t sum_of(const int32_t* counts, int64_t length) {
  return std::accumulate(counts, counts + length, int64_t{0});
}

int64_t row_bytes(const TensorView& rows) {
  return rows.size(0) == 0 ? 0 : rows.bytes() / rows.size(0);
}

}  // namespace

RowExchange::RowExchange(const GroupMember& group, int64_t experts, const RowLimits& limits, WaitMeter* waits)
    : group_(&group), local_experts_(experts / group.ranks), limits_(limits), waits_(waits) {
  PENSTOCK_CHECK(experts % group.ranks == 0, "{} experts on {} ranks", experts, group.ranks);
  own_counts_.resize(static_cast<size_t>(experts));
}

Status RowExchange::exchange_counts(const RowRoute& route) {
  const int32_t* const offsets = route.offsets.i32();
  for (size_t e = 0; e < own_counts_.size(); ++e) own_counts_[e] = offsets[e + 1] - offsets[e];
  int32_t* const counts = route.counts.i32();
  const int64_t bytes = local_experts_ * static_cast<int64_t>(sizeof(int32_t));
  if (route.alone) std::memset(counts, 0, static_cast<size_t>(route.counts.bytes()));
  for (int rank = 0; rank < group_->ranks; ++rank) {
    const Segment sent{own_counts_.data() + rank * local_experts_, bytes};
    PENSTOCK_RETURN_IF_ERROR(post(route, rank, sent, {counts + rank * local_experts_, bytes}));
  }
  PENSTOCK_RETURN_IF_ERROR(wait());
  for (int rank = 0; rank < group_->ranks; ++rank) {
    PENSTOCK_RETURN_IF_ERROR(check(rank, counts + rank * local_experts_));
  }
  return ok_status();
}

Status RowExchange::check(int rank, const int32_t* counts) const {
  int64_t total = 0;
  for (int64_t e = 0; e < local_experts_; ++e) {
    total += counts[e];
    if (counts[e] >= 0 && counts[e] <= limits_.for_expert && total <= limits_.for_rank) continue;
    return data_loss(
        "rank {} of {} in the expert-model group says that it has {} rows for expert {} of rank {}, {} for all "
        "up to it; expected 0 to {}, and {} for all",
        rank, group_->ranks, counts[e], e, group_->rank.value, total, limits_.for_expert, limits_.for_rank);
  }
  return ok_status();
}

Status RowExchange::post_forth(const RowRoute& route, TensorView own, TensorView arrived) {
  for (int rank = 0; rank < group_->ranks; ++rank) {
    PENSTOCK_RETURN_IF_ERROR(
        post(route, rank, own_segment(route, own, rank), arrived_segment(route, arrived, rank)));
  }
  return ok_status();
}

Status RowExchange::post_back(const RowRoute& route, TensorView arrived, TensorView own) {
  for (int rank = 0; rank < group_->ranks; ++rank) {
    PENSTOCK_RETURN_IF_ERROR(
        post(route, rank, arrived_segment(route, arrived, rank), own_segment(route, own, rank)));
  }
  return ok_status();
}

Status RowExchange::wait() {
  if (!pending_) return ok_status();
  return waits_ == nullptr ? pending_->wait() : waits_->measure([&] { return pending_->wait(); });
}

void RowExchange::give_up(const Status& reason) {
  if (pending_) (void)pending_->give_up(reason);
}

// Own rows for the experts of a rank.
RowExchange::Segment RowExchange::own_segment(const RowRoute& route, TensorView own, int rank) const {
  const int32_t* const offsets = route.offsets.i32();
  const int64_t begin = offsets[rank * local_experts_];
  const int64_t end = offsets[(rank + 1) * local_experts_];
  PENSTOCK_CHECK(end <= own.size(0), "{} rows, place for {}", end, own.size(0));
  return {static_cast<char*>(own.data()) + begin * row_bytes(own), (end - begin) * row_bytes(own)};
}

// Arrived rows of a rank's tokens.
RowExchange::Segment RowExchange::arrived_segment(const RowRoute& route, TensorView arrived, int rank) const {
  const int32_t* const counts = route.counts.i32();
  const int64_t begin = sum_of(counts, rank * local_experts_);
  const int64_t rows = sum_of(counts + rank * local_experts_, local_experts_);
  PENSTOCK_CHECK(begin + rows <= arrived.size(0), "{} rows, place for {}", begin + rows, arrived.size(0));
  return {static_cast<char*>(arrived.data()) + begin * row_bytes(arrived), rows * row_bytes(arrived)};
}

Status RowExchange::post(const RowRoute& route, int peer, const Segment& sent, const Segment& received) {
  if (peer == group_->rank.value) {
    PENSTOCK_CHECK_EQ(sent.bytes, received.bytes);
    if (sent.bytes > 0) std::memcpy(received.data, sent.data, static_cast<size_t>(sent.bytes));
    return ok_status();
  }
  if (route.alone) return ok_status();
  Status status = ok_status();
  if (received.bytes > 0) {
    status = pending().post_receive(RankIndex(peer), received.data, received.bytes);
  }
  if (status.ok() && sent.bytes > 0) status = pending().post_send(RankIndex(peer), sent.data, sent.bytes);
  return status.ok() ? status : pending().give_up(status);
}

// The endpoint is there when the first exchange is.
PendingTransfers& RowExchange::pending() {
  PENSTOCK_CHECK(group_->endpoint != nullptr, "rank {} exchanges rows before its group is connected",
                 group_->rank.value);
  constexpr int kTensors = 2;  // under way at once: rows, and a number of each
  if (!pending_) pending_.emplace(*group_->endpoint, 2 * kTensors * group_->ranks);
  return *pending_;
}

int64_t arrived_rows(TensorView counts) {
  return sum_of(counts.i32(), counts.elements());
}

Dispatch plan_arrivals(TensorView counts, const Dispatch& room) {
  const int64_t ranks = counts.size(0), experts = counts.size(1);
  const int64_t rows = arrived_rows(counts);
  PENSTOCK_CHECK(rows <= room.row.size(0) && rows <= room.source.elements(), "{} rows, place for {}", rows,
                 room.row.size(0));
  const auto count = [&](int64_t rank, int64_t expert) { return counts.i32()[rank * experts + expert]; };
  int32_t* const offsets = room.offsets.i32();
  std::fill(offsets, offsets + experts + 1, 0);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t e = 0; e < experts; ++e) offsets[e + 1] += count(rank, e);
  }
  for (int64_t e = 0; e < experts; ++e) offsets[e + 1] += offsets[e];
  // Each offset runs through its expert's rows and ends where the next one's begin.
  int32_t arrived = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t e = 0; e < experts; ++e) {
      for (int32_t i = 0; i < count(rank, e); ++i, ++arrived) {
        const int32_t row = offsets[e]++;
        room.row.i32()[arrived] = row;
        room.source.i32()[row] = arrived;
      }
    }
  }
  for (int64_t e = experts; e > 0; --e) offsets[e] = offsets[e - 1];
  offsets[0] = 0;
  return {.row = room.row.rows(0, rows), .source = room.source, .offsets = room.offsets};
}

}  // namespace penstock::worker
