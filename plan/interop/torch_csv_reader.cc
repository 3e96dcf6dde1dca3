#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "plan/interop/internal/torch_cells.h"
#include "plan/interop/internal/torch_transfers.h"
#include "plan/interop/torch_csv.h"
#include "plan/schedule/limits.h"

namespace penstock::plan {
namespace {

using internal::TorchAction;
using internal::TorchCell;
using internal::TorchKind;
using internal::TorchRow;

constexpr size_t kTextBytesMax = size_t{64} << 20;
constexpr size_t kViolationsMax = 20;

// A cell as a message shows it.
std::string shown(std::string_view cell) {
  constexpr size_t kShown = 40;
  std::string text(cell.substr(0, kShown));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return cell.size() <= kShown ? text : text + "...";
}

std::string_view unquoted(std::string_view cell) {
  cell = trim(cell);
  const bool quoted = cell.size() >= 2 && cell.front() == '"' && cell.back() == '"';
  return quoted ? trim(cell.substr(1, cell.size() - 2)) : cell;
}

class Importer {
 public:
  Importer(const std::string& path, std::optional<TorchFormat> expected) : expected_(expected) {
    import_.program.schedule = "file:" + path;
  }

  // Every step relies on the ones before it.
  TorchImport run(const std::string& text) {
    if (read_rows(text) && find_format() && place_stages() && letters_are_of_today() && is_valid_program() &&
        losses_are_in_order() && import_.format == TorchFormat::ComputeComms) {
      internal::check_torch_transfers(rows_, import_.program, kViolationsMax, import_.violations);
    }
    return std::move(import_);
  }

 private:
  struct Spot {
    int rank = -1;
    int position = -1;
  };

  template <typename... Args>
  bool refuse(const char* rule, Spot spot, const std::string& action, fmt::format_string<Args...> format,
              Args&&... args) {
    if (import_.violations.size() < kViolationsMax) {
      import_.violations.push_back({rule, RankIndex(spot.rank), spot.position, action,
                                    fmt::format(format, std::forward<Args>(args)...)});
    }
    return false;
  }
  bool is_full() const { return import_.violations.size() == kViolationsMax; }

  // --- text to cells.

  bool read_rows(std::string_view text) {
    if (text.size() > kTextBytesMax)
      return refuse("format", {}, "", "expected at most {} bytes, found {}", kTextBytesMax, text.size());
    if (text.starts_with("\xEF\xBB\xBF"))
      return refuse("format", {}, "", "starts with a byte order mark, which PyTorch does not read");
    if (text.ends_with('\n')) text.remove_suffix(1);
    while (!is_full()) {
      const size_t end = text.find('\n');
      read_row(text.substr(0, end));
      if (end == std::string_view::npos) break;
      text.remove_prefix(end + 1);
    }
    return import_.violations.empty();
  }

  void read_row(std::string_view line) {
    const int rank = static_cast<int>(rows_.size());
    if (rank >= limits::kRanks) {
      refuse("shape", {rank, -1}, "", "expected at most {} lines, one a rank", limits::kRanks);
      return;
    }
    TorchRow& row = rows_.emplace_back();
    if (trim(line).empty()) {
      refuse("format", {rank, -1}, "", "its line is blank; every line is a rank, and every rank computes");
      return;
    }
    if (line.starts_with('#')) {
      refuse("format", {rank, 0}, shown(line), "is a comment, and these files have none");
      return;
    }
    while (!is_full()) {
      const size_t end = line.find(',');
      read_cell(unquoted(line.substr(0, end)), {rank, static_cast<int>(row.size())}, row);
      if (end == std::string_view::npos) return;
      line.remove_prefix(end + 1);
    }
  }

  void read_cell(std::string_view text, Spot spot, TorchRow& row) {
    if (++cells_ > limits::kActions) {
      if (cells_ == limits::kActions + 1)
        refuse("shape", spot, "", "expected at most {} cells", limits::kActions);
      return;
    }
    StatusOr<TorchCell> cell = internal::parse_torch_cell(text);
    if (!cell.ok()) refuse("format", spot, shown(text), "{}", message(cell.status()));
    row.push_back(cell.ok() ? *cell : TorchCell{});
  }

  template <typename Visit>
  void for_each_action(Visit&& visit) const {
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      for (size_t position = 0; position < rows_[rank].size(); ++position) {
        const Spot spot{static_cast<int>(rank), static_cast<int>(position)};
        const TorchCell& cell = rows_[rank][position];
        if (cell.first) visit(*cell.first, spot);
        if (cell.second) visit(*cell.second, spot);
      }
    }
  }

  // --- which of the two formats.

  bool find_format() {
    std::optional<std::pair<TorchAction, Spot>> beyond_compute;
    for_each_action([&](const TorchAction& action, Spot spot) {
      if (!beyond_compute && !internal::is_compute(action.kind)) beyond_compute.emplace(action, spot);
    });
    import_.format =
        expected_.value_or(beyond_compute ? TorchFormat::ComputeComms : TorchFormat::ComputeOnly);
    if (import_.format == TorchFormat::ComputeOnly && beyond_compute) {
      const auto& [action, spot] = *beyond_compute;
      return refuse("format", spot, to_string(action),
                    "a compute_only file holds F, B, I, W and pairs alone");
    }
    return import_.format == TorchFormat::ComputeOnly || has_no_empty_cell();
  }

  bool has_no_empty_cell() {
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      const auto empty =
          std::find_if(rows_[rank].begin(), rows_[rank].end(), [](const TorchCell& c) { return !c.first; });
      if (empty == rows_[rank].end()) continue;
      refuse("format", {static_cast<int>(rank), static_cast<int>(empty - rows_[rank].begin())}, "",
             "a compute_comms file has no empty cells");
    }
    return import_.violations.empty();
  }

  // --- the shape: what the actions say of stages, ranks and microbatches.

  bool place_stages() {
    ComputeProgram& program = import_.program;
    std::map<StageIndex, std::pair<TorchAction, Spot>> first;  // where each stage is named first
    std::map<StageIndex, int> forwards;
    for_each_action([&](const TorchAction& action, Spot spot) {
      if (!internal::is_compute(action.kind)) return;
      const auto& [known, at] = first.try_emplace(action.stage, action, spot).first->second;
      if (at.rank != spot.rank) {
        refuse("ownership", spot, to_string(action), "stage {} stands on rank {}, which runs {}",
               action.stage.value, at.rank, to_string(known));
      }
      if (action.kind == TorchKind::Forward) ++forwards[action.stage];
    });
    if (!import_.violations.empty()) return false;

    const auto stages = static_cast<int64_t>(first.size());
    const auto ranks = static_cast<int64_t>(rows_.size());
    for (int64_t stage = 0; stage < stages; ++stage) {
      if (!first.contains(StageIndex(stage)))
        return refuse("complete", {}, "", "stage {} has no action; expected stages 0 to {}", stage,
                      first.rbegin()->first.value);
    }
    if (stages == 0 || stages % ranks != 0 || stages / ranks > limits::kStagesPerRank) {
      return refuse("shape", {}, "", "expected a multiple of {} stages for {} ranks, found {}", ranks, ranks,
                    stages);
    }
    program.ranks = static_cast<int>(ranks);
    program.stages_per_rank = static_cast<int>(stages / ranks);
    for (const auto& [stage, where] : first) program.placement.push_back({RankIndex(where.second.rank)});
    program.microbatches = usual_count(forwards);
    return true;
  }

  // How many forwards most stages have: a stage with another count is the one that is wrong.
  static int usual_count(const std::map<StageIndex, int>& forwards) {
    std::map<int, int> stages_with;
    for (const auto& [stage, count] : forwards) ++stages_with[count];
    std::pair<int, int> usual{1, 0};  // count, stages that have it
    for (const auto& [count, stages] : stages_with) {
      if (stages >= usual.second) usual = {count, stages};
    }
    return std::min(usual.first, limits::kMicrobatches);
  }

  // --- B for an input gradient, W and BW are what older files wrote.

  bool letters_are_of_today() {
    std::optional<std::pair<TorchAction, Spot>> weight_gradient;
    bool has_input_gradient = false;
    for_each_action([&](const TorchAction& action, Spot spot) {
      has_input_gradient = has_input_gradient || action.kind == TorchKind::InputGradient;
      if (action.kind == TorchKind::WeightGradient && !weight_gradient) weight_gradient.emplace(action, spot);
    });
    if (has_input_gradient || !weight_gradient) return true;
    const auto& [action, spot] = *weight_gradient;
    return refuse(
        "format", spot, to_string(action),
        "there is W and no I: the letters of older files, where B was the input gradient (now I) and BW the "
        "full backward (now B)");
  }

  // --- the compute program, proved like any other.

  bool is_valid_program() {
    std::vector<std::vector<int>> cell_of(rows_.size());  // [rank, position in the program]
    for (size_t rank = 0; rank < rows_.size(); ++rank) {
      std::vector<Action>& actions = import_.program.actions.emplace_back();
      for (size_t position = 0; position < rows_[rank].size(); ++position) {
        const TorchCell& cell = rows_[rank][position];
        if (!cell.first || !internal::is_compute(cell.first->kind)) continue;
        Action& action = actions.emplace_back(Action{internal::work_of(*cell.first), std::nullopt});
        if (cell.second) action.overlapped = internal::work_of(*cell.second);
        cell_of[rank].push_back(static_cast<int>(position));
      }
    }
    import_.violations = verify(import_.program).violations;
    for (Violation& violation : import_.violations) {
      if (violation.position < 0 || !violation.rank.is_set()) continue;
      violation.position =
          cell_of[static_cast<size_t>(violation.rank.value)][static_cast<size_t>(violation.position)];
    }
    return import_.violations.empty();
  }

  bool losses_are_in_order() {
    int next = 0;
    for_each_action([&](const TorchAction& action, Spot spot) {
      if (action.kind != TorchKind::Forward || action.stage != import_.program.loss_stage()) return;
      if (action.microbatch.value == next++ || !import_.violations.empty()) return;
      refuse(
          "numerics", spot, to_string(action),
          "PyTorch gives losses to microbatches by arrival; expected {}F{} here, or the gradients would be silently "
          "wrong",
          action.stage.value, next - 1);
    });
    return import_.violations.empty();
  }

  std::optional<TorchFormat> expected_;
  TorchImport import_;
  std::vector<TorchRow> rows_;
  int64_t cells_ = 0;
};

}  // namespace

TorchImport import_torch_csv(const std::string& text, const std::string& path,
                             std::optional<TorchFormat> expected) {
  return Importer(path, expected).run(text);
}

}  // namespace penstock::plan
