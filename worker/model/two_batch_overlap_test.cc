// The halves of a microbatch: the same bits, and messages that travel while the other half is worked on.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "worker/model/testing/expert_group.h"
#include "worker/model/testing/same_values.h"

namespace penstock::worker {
namespace {

// The order in which transfers were posted and waited for. Posts with no wait between them are one burst.
class TransferOrder {
 public:
  void post(int64_t id, int64_t bytes) {
    if (!events_.empty() && events_.back().is_wait) ++burst_;
    events_.push_back({.is_wait = false, .id = id, .bytes = bytes, .burst = burst_});
  }
  void wait(int64_t id) {
    const auto post =
        std::find_if(events_.begin(), events_.end(), [&](const Event& e) { return e.id == id; });
    events_.push_back({.is_wait = true, .id = id, .bytes = post->bytes, .burst = post->burst});
  }

  struct Bytes {
    int64_t all = 0;
    int64_t hidden =
        0;  // between their post and their wait stand others of another burst, and the work for them
  };
  // Of rows: messages longer than the counts'.
  Bytes rows(int64_t bytes_of_counts) const {
    Bytes bytes;
    for (size_t post = 0; post < events_.size(); ++post) {
      if (events_[post].is_wait || events_[post].bytes == bytes_of_counts) continue;
      bytes.all += events_[post].bytes;
      for (size_t at = post + 1; at < events_.size(); ++at) {
        if (events_[at].is_wait && events_[at].id == events_[post].id) break;
        if (events_[at].burst == events_[post].burst) continue;
        bytes.hidden += events_[post].bytes;
        break;
      }
    }
    return bytes;
  }

 private:
  struct Event {
    bool is_wait = false;
    int64_t id = -1;
    int64_t bytes = 0;
    int burst = 0;
  };
  std::vector<Event> events_;
  int burst_ = 0;
};

class RecordingEndpoint final : public Endpoint {
 public:
  RecordingEndpoint(std::unique_ptr<Endpoint> inner, TransferOrder& order)
      : inner_(std::move(inner)), order_(order) {}
  Status open(const Group& group, Rendezvous& rendezvous, Duration timeout) override {
    return inner_->open(group, rendezvous, timeout);
  }
  StatusOr<TransferId> post_send(RankIndex target, const void* data, int64_t bytes) override {
    PENSTOCK_ASSIGN_OR_RETURN(const TransferId id, inner_->post_send(target, data, bytes));
    order_.post(id.value, bytes);
    return id;
  }
  StatusOr<TransferId> post_receive(RankIndex source, void* data, int64_t bytes) override {
    PENSTOCK_ASSIGN_OR_RETURN(const TransferId id, inner_->post_receive(source, data, bytes));
    order_.post(id.value, bytes);
    return id;
  }
  Status wait(TransferId id) override {
    order_.wait(id.value);
    return inner_->wait(id);
  }
  void abort(const std::string& reason) override { inner_->abort(reason); }
  Status drain() override { return inner_->drain(); }

 private:
  std::unique_ptr<Endpoint> inner_;
  TransferOrder& order_;
};

// Of every rank, over a step.
std::vector<TransferOrder::Bytes> rows_of(const Variant& variant, const Work& work) {
  std::vector<TransferOrder> orders(static_cast<size_t>(variant.ranks));
  on_ranks(job_of(variant), work, leave_weights, [&](int rank, std::unique_ptr<Endpoint> endpoint) {
    return std::make_unique<RecordingEndpoint>(std::move(endpoint), orders[static_cast<size_t>(rank)]);
  });
  const int64_t counts = kExperts / variant.ranks * static_cast<int64_t>(sizeof(int32_t));
  std::vector<TransferOrder::Bytes> bytes;
  for (const TransferOrder& order : orders) bytes.push_back(order.rows(counts));
  return bytes;
}

TEST(TwoBatchOverlap, messages_with_rows_travel_while_the_other_half_is_worked_on) {
  // All but the first half's output gradients, behind which stands no more than the gathering of the second's: seven
  // eighths, since rows travel forth and back in both passes.
  for (const Work& work : {Work(all_in_order), Work(with_split_backwards)}) {
    const auto whole = rows_of({.ranks = 2}, work);
    const auto halves = rows_of({.ranks = 2, .halves = true}, work);
    for (size_t rank = 0; rank < whole.size(); ++rank) {
      EXPECT_GT(whole[rank].all, 0);
      EXPECT_EQ(whole[rank].hidden, 0)
          << "nothing stands between a whole microbatch's messages and their waits";
      EXPECT_EQ(halves[rank].all, whole[rank].all) << "the same rows travel";
      EXPECT_NEAR(static_cast<double>(halves[rank].hidden), 7.0 / 8 * static_cast<double>(halves[rank].all),
                  0.02 * static_cast<double>(halves[rank].all));
    }
  }
}

TEST(TwoBatchOverlap, changes_no_bit_of_a_token) {
  // Without a capacity, which the halves have each for itself.
  for (const int64_t shared : {0, 2}) {
    const auto halves = on_ranks(job_of({.ranks = 2, .halves = true, .shared = shared}), all_in_order);
    const auto whole = on_ranks(job_of({.ranks = 2, .shared = shared}), all_in_order);
    for (size_t r = 0; r < halves.size(); ++r) {
      for (const auto& [number, outputs] : halves[r]->outputs()) {
        expect_same_values(outputs, whole[r]->outputs().at(number), "float32", "outputs");
      }
      for (const auto& [number, gradients] : halves[r]->input_gradients()) {
        expect_same_values(gradients, whole[r]->input_gradients().at(number), "float32", "input gradients");
      }
    }
  }
}

TEST(TwoBatchOverlap, of_all_experts_on_one_rank_has_the_bits_of_halves_that_travel) {
  // There nothing travels, and the halves run in turn.
  const plan::JobSpec job = job_of({.ranks = 2, .capacity_factor = 0.8, .halves = true});
  const auto in_turn =
      alone(on_one_rank(job, kSequences), [](BlockRank& block) { return in_order(block, 4); });
  for (const auto& rank : on_ranks(job, all_in_order)) {
    for (const auto& [number, outputs] : rank->outputs()) {
      expect_same_values(outputs, in_turn->outputs().at(number), "float32", "outputs");
    }
    for (const auto& [number, gradients] : rank->input_gradients()) {
      expect_same_values(gradients, in_turn->input_gradients().at(number), "float32", "input gradients");
    }
  }
}

}  // namespace
}  // namespace penstock::worker
