#include "plan/interop/internal/torch_transfers.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "plan/schedule/dataflow.h"

namespace penstock::plan::internal {
namespace {

// Where something stands in the file.
struct Spot {
  int rank = -1;
  int position = -1;
  bool is_set() const { return rank >= 0; }
};

class TransferChecker {
 public:
  TransferChecker(const std::vector<TorchRow>& rows, const ComputeProgram& program, size_t limit,
                  std::vector<Violation>& violations)
      : rows_(rows),
        program_(program),
        limit_(limit),
        violations_(violations),
        microbatches_(static_cast<size_t>(program.microbatches)) {
    const size_t cells = static_cast<size_t>(program.stages()) * microbatches_;
    for (auto& spots : computed_) spots.resize(cells);
    for (auto& spots : sent_) spots.resize(cells);
    for (auto& spots : received_) spots.resize(cells);
    reduced_.resize(static_cast<size_t>(program.stages()));
    last_backward_.resize(static_cast<size_t>(program.stages()));
  }

  void run() {
    for_each_action([&](const TorchAction& action, Spot spot) { note_compute(action, spot); });
    for_each_action([&](const TorchAction& action, Spot spot) { note_other(action, spot); });
    if (violations_.empty()) every_tensor_arrives();
    if (violations_.empty()) pairs_agree_on_the_order();
    every_gradient_is_reduced();
  }

 private:
  enum Made : size_t { kForward, kBackwardStart };

  template <typename... Args>
  void refuse(const char* rule, Spot spot, const std::string& action, fmt::format_string<Args...> format,
              Args&&... args) {
    if (violations_.size() >= limit_) return;
    violations_.push_back({rule, RankIndex(spot.rank), spot.position, action,
                           fmt::format(format, std::forward<Args>(args)...)});
  }

  template <typename Visit>
  void for_each_action(Visit&& visit) {
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      for (size_t position = 0; position < rows_[rank].size(); ++position) {
        const Spot spot{static_cast<int>(rank), static_cast<int>(position)};
        const TorchCell& cell = rows_[rank][position];
        if (cell.first) visit(*cell.first, spot);
        if (cell.second) visit(*cell.second, spot);
      }
    }
  }

  size_t index(StageIndex stage, MicrobatchIndex microbatch) const {
    return static_cast<size_t>(stage.value) * microbatches_ + static_cast<size_t>(microbatch.value);
  }

  int rank_of(StageIndex stage) const {
    return program_.placement[static_cast<size_t>(stage.value)].front().value;
  }

  void note_compute(const TorchAction& action, Spot spot) {
    if (!is_compute(action.kind)) return;
    const Work work = work_of(action);
    if (work.kind == ActionKind::Forward) computed_[kForward][index(work.stage, work.microbatch)] = spot;
    if (starts_backward(work.kind)) computed_[kBackwardStart][index(work.stage, work.microbatch)] = spot;
    if (ends_backward(work.kind)) last_backward_[static_cast<size_t>(work.stage.value)] = spot;
  }

  void note_other(const TorchAction& action, Spot spot) {
    if (is_compute(action.kind)) return;
    if (action.stage.value >= program_.stages()) {
      return refuse("shape", spot, to_string(action), "expected a stage of 0 to {}", program_.stages() - 1);
    }
    if (rank_of(action.stage) != spot.rank) {
      return refuse("ownership", spot, to_string(action), "stage {} stands on rank {}", action.stage.value,
                    rank_of(action.stage));
    }
    if (is_transfer(action.kind)) return note_transfer(action, spot);
    if (action.kind == TorchKind::ReduceGrad) note_reduction(action, spot);
  }

  // The tensor that a transfer moves; its ends may lie outside of the pipeline.
  static Passage passage_of(const TorchAction& action) {
    const bool forward = action.kind == TorchKind::SendForward || action.kind == TorchKind::ReceiveForward;
    const bool sends = action.kind == TorchKind::SendForward || action.kind == TorchKind::SendBackward;
    const int64_t named = action.stage.value;
    const StageIndex other(named + ((forward == sends) ? 1 : -1));
    return {sends ? action.stage : other, sends ? other : action.stage, action.microbatch,
            forward ? Flow::Activation : Flow::Gradient};
  }

  void note_transfer(const TorchAction& action, Spot spot) {
    const std::string name = to_string(action);
    if (action.microbatch.value >= program_.microbatches) {
      return refuse("shape", spot, name, "expected a microbatch of 0 to {}", program_.microbatches - 1);
    }
    const Passage passage = passage_of(action);
    const int stages = program_.stages();
    for (const StageIndex end : {passage.source, passage.target}) {
      if (end.value < 0 || end.value >= stages)
        return refuse("transfers", spot, name, "there is no stage {}", end.value);
    }
    if (rank_of(passage.source) == rank_of(passage.target)) {
      return refuse("transfers", spot, name,
                    "stages {} and {} stand on one rank, nothing is sent between them", passage.source.value,
                    passage.target.value);
    }
    const bool sends = action.kind == TorchKind::SendForward || action.kind == TorchKind::SendBackward;
    auto& known =
        (sends ? sent_
               : received_)[static_cast<size_t>(passage.flow)][index(passage.source, passage.microbatch)];
    if (known.is_set())
      return refuse("transfers", spot, name, "is there twice, first in cell {}", known.position);
    known = spot;
    const Made made = passage.flow == Flow::Activation ? kForward : kBackwardStart;
    const Spot compute = computed_[made][index(action.stage, action.microbatch)];
    if (sends && compute.position > spot.position) {
      refuse("transfers", spot, name, "stands before its producer in cell {}", compute.position);
    }
    if (!sends && compute.position < spot.position) {
      refuse("transfers", spot, name, "stands behind its consumer in cell {}", compute.position);
    }
    order_[{rank_of(passage.source), rank_of(passage.target)}][sends ? 0 : 1].emplace_back(passage, spot);
  }

  void note_reduction(const TorchAction& action, Spot spot) {
    const auto stage = static_cast<size_t>(action.stage.value);
    if (reduced_[stage].is_set()) {
      return refuse("numerics", spot, to_string(action), "is there twice, first in cell {}",
                    reduced_[stage].position);
    }
    reduced_[stage] = spot;
    if (spot.position > last_backward_[stage].position) return;
    refuse("numerics", spot, to_string(action),
           "stands before the stage's last backward in cell {}: what that adds would not be scaled",
           last_backward_[stage].position);
  }

  static std::string transfer_name(const Passage& passage, bool sends) {
    const StageIndex stage = sends ? passage.source : passage.target;
    return fmt::format("{}{}_{}{}", stage.value, sends ? "SEND" : "RECV",
                       passage.flow == Flow::Activation ? "F" : "B", passage.microbatch.value);
  }

  void every_tensor_arrives() {
    for (int stage = 0; stage < program_.stages(); ++stage) {
      for (int microbatch = 0; microbatch < program_.microbatches; ++microbatch) {
        for (const ActionKind kind : {ActionKind::Forward, ActionKind::Backward}) {
          const auto passage =
              outgoing({StageIndex(stage), kind, MicrobatchIndex(microbatch)}, program_.stages());
          if (passage && rank_of(passage->source) != rank_of(passage->target)) arrives(*passage);
        }
      }
    }
  }

  void arrives(const Passage& passage) {
    const auto flow = static_cast<size_t>(passage.flow);
    const size_t at = index(passage.source, passage.microbatch);
    if (!sent_[flow][at].is_set()) {
      refuse("transfers", {rank_of(passage.source), -1}, transfer_name(passage, true),
             "is missing: {} would wait for ever", transfer_name(passage, false));
    }
    if (!received_[flow][at].is_set()) {
      refuse("transfers", {rank_of(passage.target), -1}, transfer_name(passage, false), "is missing");
    }
  }

  void pairs_agree_on_the_order() {
    for (const auto& [pair, transfers] : order_) {
      const auto& sends = transfers[0];
      const auto& receives = transfers[1];
      const auto [sent, received] =
          std::mismatch(sends.begin(), sends.end(), receives.begin(), receives.end(),
                        [](const auto& a, const auto& b) { return a.first == b.first; });
      if (sent == sends.end()) continue;
      refuse(
          "transfers", received->second, transfer_name(received->first, false),
          "is received where rank {} sends {}: transfers between two ranks have no tags, and the tensors would be "
          "swapped silently",
          pair.first, transfer_name(sent->first, true));
    }
  }

  void every_gradient_is_reduced() {
    for (int stage = 0; stage < program_.stages(); ++stage) {
      if (reduced_[static_cast<size_t>(stage)].is_set()) continue;
      refuse("numerics", {rank_of(StageIndex(stage)), -1}, fmt::format("{}REDUCE_GRAD", stage),
             "is missing: the gradients of stage {} would stay {} times too large", stage,
             program_.microbatches);
    }
  }

  using Transfers = std::vector<std::pair<Passage, Spot>>;

  const std::vector<TorchRow>& rows_;
  const ComputeProgram& program_;
  size_t limit_;
  std::vector<Violation>& violations_;
  size_t microbatches_;
  std::vector<Spot> computed_[2];  // [Made][stage, microbatch]
  std::vector<Spot> sent_[2];      // [flow][source stage, microbatch]
  std::vector<Spot> received_[2];
  std::vector<Spot> reduced_;        // [stage]
  std::vector<Spot> last_backward_;  // [stage]
  std::map<std::pair<int, int>, std::array<Transfers, 2>>
      order_;  // [source rank, target rank]: sends, receives
};

}  // namespace

void check_torch_transfers(const std::vector<TorchRow>& rows, const ComputeProgram& program, size_t limit,
                           std::vector<Violation>& violations) {
  TransferChecker(rows, program, limit, violations).run();
}

}  // namespace penstock::plan::internal
