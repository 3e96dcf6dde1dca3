#include "worker/transport/gloo/transfer_records.h"

#include <algorithm>

#include "worker/transport/gloo/endpoint.h"

namespace penstock::worker {

// Out of the free ones.
int TransferRecords::choose(const void* data, int64_t bytes) {
  if (free_.empty()) {
    transfers_.emplace_back();
    free_.push_back(static_cast<int>(transfers_.size()) - 1);
  }
  auto chosen = std::find_if(free_.begin(), free_.end(), [&](int index) {
    return transfers_[index].data == data && transfers_[index].bytes == bytes;
  });
  if (chosen == free_.end()) --chosen;
  const int index = *chosen;
  *chosen = free_.back();
  free_.pop_back();
  return index;
}

GlooTransfer& TransferRecords::take(::gloo::rendezvous::Context& context, Direction direction, int peer,
                                    void* data, int64_t bytes) {
  const int index = choose(data, bytes);
  GlooTransfer& transfer = transfers_[index];
  if (!transfer.payload || transfer.data != data || transfer.bytes != bytes) {
    transfer.payload = context.createUnboundBuffer(data, static_cast<size_t>(bytes));
  }
  transfer.direction = direction;
  transfer.peer = peer;
  transfer.data = data;
  transfer.bytes = bytes;
  transfer.started = false;
  transfer.id = uses_++ * kTransfersInFlight + index;
  ++in_flight_;
  return transfer;
}

GlooTransfer* TransferRecords::find(TransferId id) {
  const int64_t index = id.value % kTransfersInFlight;
  if (id.value < 0 || index >= static_cast<int64_t>(transfers_.size())) return nullptr;
  return transfers_[index].id == id.value ? &transfers_[index] : nullptr;
}

void TransferRecords::give_back(GlooTransfer& transfer) {
  const int index = static_cast<int>(transfer.id % kTransfersInFlight);
  transfer.id = -1;
  free_.push_back(index);
  --in_flight_;
}

void TransferRecords::abort_waits() {
  for (GlooTransfer& transfer : transfers_) {
    if (transfer.id < 0) continue;
    if (transfer.payload) {
      transfer.payload->abortWaitSend();
      transfer.payload->abortWaitRecv();
    }
    if (transfer.ready.buffer) transfer.ready.buffer->abortWaitSend();
  }
}

}  // namespace penstock::worker
