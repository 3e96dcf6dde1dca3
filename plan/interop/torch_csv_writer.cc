#include <algorithm>
#include <set>
#include <utility>

#include "plan/interop/internal/torch_cells.h"
#include "plan/interop/torch_csv.h"
#include "plan/schedule/dataflow.h"

namespace penstock::plan {
namespace {

using internal::TorchAction;
using internal::TorchCell;
using internal::TorchKind;
using Row = std::vector<TorchCell>;

TorchAction torch_action(const Work& work) {
  return {work.stage, internal::torch_kind(work.kind), work.microbatch};
}

TorchCell torch_cell(const Action& action) {
  TorchCell cell{torch_action(action.work), std::nullopt};
  if (action.overlapped) cell.second = torch_action(*action.overlapped);
  return cell;
}

TorchCell of_stage(StageIndex stage, TorchKind kind) {
  return {TorchAction{stage, kind, MicrobatchIndex()}, std::nullopt};
}

Status check_order_of_losses(const ComputeProgram& program) {
  int next = 0;
  for (const auto& actions : program.actions) {
    for (const Action& action : actions) {
      for (const Work* work : {&action.work, action.overlapped ? &*action.overlapped : nullptr}) {
        if (work == nullptr || work->stage != program.loss_stage() || work->kind != ActionKind::Forward)
          continue;
        if (work->microbatch.value != next++) {
          return invalid_argument(
              "{}: PyTorch gives losses to microbatches by arrival; expected {}F{} here, or the gradients would be "
              "silently wrong",
              to_string(*work), work->stage.value, next - 1);
        }
      }
    }
  }
  return ok_status();
}

Status check_expressible(const ComputeProgram& program) {
  if (program.has_replicas()) {
    return invalid_argument("stages stand on two ranks, and PyTorch's file holds a stage on one");
  }
  if (program.forward_only) return invalid_argument("a program without backwards is none to PyTorch");
  if (program.updates != 1) {
    return invalid_argument("a PyTorch file is one optimizer step; this program spans {}", program.updates);
  }
  if (program.version_rule != WeightVersionRule::Synchronous) {
    return invalid_argument(
        "PyTorch's runtime keeps one version of the weights, and this schedule needs several");
  }
  return check_order_of_losses(program);
}

std::string text_of(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) text += (i == 0 ? "" : ",") + internal::to_string(row[i]);
    text += "\n";
  }
  return text;
}

// The rank's stages in the order in which it first computes them.
std::vector<StageIndex> stages_of(const std::vector<Action>& actions) {
  std::vector<StageIndex> stages;
  const auto note = [&](const Work& work) {
    if (std::find(stages.begin(), stages.end(), work.stage) == stages.end()) stages.push_back(work.stage);
  };
  for (const Action& action : actions) {
    note(action.work);
    if (action.overlapped) note(*action.overlapped);
  }
  return stages;
}

// What a rank does apart from transfers. PyTorch has its sharded parameters gathered before the first action
// of a stage, and reduces the gradient behind the last one.
Row row_without_transfers(const ComputeProgram& program, RankIndex rank) {
  const auto& actions = program.actions[static_cast<size_t>(rank.value)];
  Row row;
  for (const StageIndex stage : stages_of(actions)) row.push_back(of_stage(stage, TorchKind::Unshard));
  std::vector<std::pair<StageIndex, int>> left;  // backwards that are still to end, by stage
  for (const StageIndex stage : stages_of(actions)) left.emplace_back(stage, program.microbatches);

  const auto note = [&](const Work& work) {
    if (!ends_backward(work.kind)) return;
    const auto of_work = [&](const auto& entry) { return entry.first == work.stage; };
    if (--std::find_if(left.begin(), left.end(), of_work)->second > 0) return;
    row.push_back(of_stage(work.stage, TorchKind::ReduceGrad));
    row.push_back(of_stage(work.stage, TorchKind::Reshard));
  };
  for (const Action& action : actions) {
    row.push_back(torch_cell(action));
    note(action.work);
    if (action.overlapped) note(*action.overlapped);
  }
  return row;
}

// Plays the ranks in turns, an action a turn, and notes every transfer when its producer has run: the order
// in which PyTorch itself lowers a compute_only file. A rank that waits is looked at again when a tensor
// reaches it.
class TransferPlacer {
 public:
  explicit TransferPlacer(const ComputeProgram& program)
      : program_(program),
        cells_(static_cast<size_t>(program.stages()) * static_cast<size_t>(program.total_microbatches())) {
    for (auto& delivered : delivered_) delivered.assign(cells_, false);
  }

  // Internal when the program has a circle, which verify() refuses.
  StatusOr<std::vector<Row>> run() {
    std::vector<Row> waiting;
    for (int rank = 0; rank < program_.ranks; ++rank) {
      waiting.push_back(row_without_transfers(program_, RankIndex(rank)));
    }
    rows_.resize(waiting.size());
    std::vector<size_t> position(waiting.size(), 0);
    for (size_t rank = 0; rank < waiting.size(); ++rank) next_turn_.insert(rank);
    while (!next_turn_.empty()) {
      this_turn_ = std::exchange(next_turn_, {});
      while (!this_turn_.empty()) {
        const size_t rank = this_turn_.extract(this_turn_.begin()).value();
        if (position[rank] == waiting[rank].size() || !is_ready(waiting[rank][position[rank]])) continue;
        next_turn_.insert(rank);
        run(waiting[rank][position[rank]++], rank);
      }
    }
    for (size_t rank = 0; rank < waiting.size(); ++rank) {
      if (position[rank] < waiting[rank].size()) return internal_error("rank {} waits for ever", rank);
    }
    return std::move(rows_);
  }

 private:
  bool is_delivered(const Passage& passage) const {
    return delivered_[static_cast<size_t>(passage.flow)][index(passage)];
  }
  size_t index(const Passage& passage) const {
    return static_cast<size_t>(passage.source.value) * static_cast<size_t>(program_.total_microbatches()) +
           static_cast<size_t>(passage.microbatch.value);
  }

  bool has_input(const std::optional<TorchAction>& action) const {
    if (!action || !internal::is_compute(action->kind)) return true;
    const auto passage = incoming(internal::work_of(*action), program_.stages());
    return !passage || is_delivered(*passage);
  }
  bool is_ready(const TorchCell& cell) const { return has_input(cell.first) && has_input(cell.second); }

  void run(const TorchCell& cell, size_t rank) {
    rows_[rank].push_back(cell);
    deliver(cell.first, rank);
    deliver(cell.second, rank);
  }

  void deliver(const std::optional<TorchAction>& action, size_t rank) {
    if (!action || !internal::is_compute(action->kind)) return;
    const auto passage = outgoing(internal::work_of(*action), program_.stages());
    if (!passage) return;
    delivered_[static_cast<size_t>(passage->flow)][index(*passage)] = true;
    const auto target = static_cast<size_t>(program_.rank_of(passage->target, passage->microbatch).value);
    if (target == rank) return;
    const bool forward = passage->flow == Flow::Activation;
    const TorchKind send = forward ? TorchKind::SendForward : TorchKind::SendBackward;
    const TorchKind receive = forward ? TorchKind::ReceiveForward : TorchKind::ReceiveBackward;
    rows_[rank].push_back({TorchAction{passage->source, send, passage->microbatch}, std::nullopt});
    rows_[target].push_back({TorchAction{passage->target, receive, passage->microbatch}, std::nullopt});
    (target > rank ? this_turn_ : next_turn_).insert(target);
  }

  const ComputeProgram& program_;
  size_t cells_;
  std::vector<bool> delivered_[2];  // [flow][source stage, microbatch]
  std::vector<Row> rows_;
  std::set<size_t> this_turn_;  // ranks that may be able to run, in the order of their turns
  std::set<size_t> next_turn_;
};

}  // namespace

const char* name_of(TorchFormat format) {
  switch (format) {
    case TorchFormat::ComputeOnly:
      return "compute_only";
    case TorchFormat::ComputeComms:
      return "compute_comms";
  }
  return "";
}

StatusOr<std::string> program_to_torch_csv(const ComputeProgram& program, TorchFormat format) {
  if (const Status status = check_expressible(program); !status.ok()) {
    return with_context(status, fmt::format("{} as a PyTorch schedule", program.schedule));
  }
  if (format == TorchFormat::ComputeComms) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Row> rows, TransferPlacer(program).run());
    return text_of(rows);
  }
  std::vector<Row> rows;
  for (const auto& actions : program.actions) {
    Row& row = rows.emplace_back();
    for (const Action& action : actions) row.push_back(torch_cell(action));
  }
  return text_of(rows);
}

}  // namespace penstock::plan
