// Sums float32 tensors over ranks: element by element in one order of the ranks, ((x0 + x1) + x2) + ..., with the same
// bits on all of them, whatever the messages are cut into.
//
// A round cuts as many pieces out of the tensor as there are ranks:
//
//     scatter   every rank sends each of the others the piece that it owns; the owner adds them up in order
//     gather    and sends the sum to all
//
// So each sum is formed once, and a rank sends and receives 2 (N - 1) / N of the tensor, which is the least. The scatter
// of the next round is under way during a round's sum and gather.
//
// Errors: those of the endpoint; nothing is under way afterwards, and the tensor's values are undefined. Thread: the
// interpreter's, at the same place among the messages of all ranks. All memory is taken by the constructor.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "kernels/ops/operators.h"
#include "kernels/tensor/tensor.h"
#include "worker/collectives/group_member.h"
#include "worker/transport/pending_transfers.h"

namespace penstock::worker {

class OrderedSum {
 public:
  static constexpr int kInFlight = 2;               // rounds
  static constexpr int64_t kBufferBytes = 1 << 20;  // for the pieces of the others, of a round

  // `group` is connected. Its endpoint and `operators` outlive this.
  OrderedSum(const GroupMember& group, kernels::Operators& operators);

  // Memory account.
  int64_t bytes() const { return static_cast<int64_t>(received_.size() * sizeof(float)); }

  // Over all ranks of the group.
  Status sum(kernels::TensorView tensor) { return sum(tensor, all_); }
  // Over some of them, in this order; this rank is one, and all name the same.
  Status sum(kernels::TensorView tensor, std::span<const RankIndex> ranks);

 private:
  struct Run;  // of one tensor
  Status post_scatter(const Run& run, int64_t round);
  void add(const Run& run, int64_t round);
  Status post_gather(const Run& run, int64_t round);
  Status play(const Run& run);

  RankIndex me_;
  std::vector<RankIndex> all_;
  kernels::Operators* operators_;
  std::vector<float> received_;  // kInFlight x kBufferBytes
  // Into received_ and the tensors: end before them.
  std::array<PendingTransfers, kInFlight> scatters_;
  std::array<PendingTransfers, kInFlight> gathers_;
};

}  // namespace penstock::worker
