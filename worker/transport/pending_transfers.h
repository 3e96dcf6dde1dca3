// Transfers over memory that lives no longer than they do.
//
// A posted buffer is the transport's until its wait() has returned, also after an error: a function that
// returned at the first failure would free memory into which a late message is then written. Whatever
// happens, none of these transfers is under way any more when wait() or give_up() has returned, or this has
// ended.
//
// Errors: those of the endpoint. Thread: the interpreter's. `endpoint` outlives the last transfer.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "worker/transport/endpoint.h"

namespace penstock::worker {

class PendingTransfers {
 public:
  // Nothing is allocated while no more than `reserved` are posted at a time.
  PendingTransfers(Endpoint& endpoint, int64_t reserved) : endpoint_(&endpoint) {
    transfers_.reserve(static_cast<size_t>(reserved));
  }
  PendingTransfers(PendingTransfers&& other) noexcept
      : endpoint_(other.endpoint_), transfers_(std::exchange(other.transfers_, {})) {}
  PendingTransfers& operator=(PendingTransfers&&) = delete;
  ~PendingTransfers() {
    if (!transfers_.empty()) (void)give_up(internal_error("transfers were left under way"));
  }

  Status post_send(RankIndex target, const void* data, int64_t bytes) {
    PENSTOCK_ASSIGN_OR_RETURN(const TransferId transfer, endpoint_->post_send(target, data, bytes));
    transfers_.push_back(transfer);
    return ok_status();
  }
  Status post_receive(RankIndex source, void* data, int64_t bytes) {
    PENSTOCK_ASSIGN_OR_RETURN(const TransferId transfer, endpoint_->post_receive(source, data, bytes));
    transfers_.push_back(transfer);
    return ok_status();
  }

  // Ends all of them, in the order in which they were posted. After the first error the endpoint is aborted,
  // so that the others end at once.
  Status wait() {
    for (size_t i = 0; i < transfers_.size(); ++i) {
      if (const Status status = endpoint_->wait(transfers_[i]); !status.ok()) {
        transfers_.erase(transfers_.begin(), transfers_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        return give_up(status);
      }
    }
    transfers_.clear();
    return ok_status();
  }

  // Aborts the endpoint with the reason, ends all transfers, and returns the reason.
  Status give_up(const Status& reason) {
    endpoint_->abort(message(reason));
    for (const TransferId transfer : transfers_)
      (void)endpoint_->wait(transfer);  // says no more than `reason`
    transfers_.clear();
    return reason;
  }

 private:
  Endpoint* endpoint_;
  std::vector<TransferId> transfers_;
};

}  // namespace penstock::worker
