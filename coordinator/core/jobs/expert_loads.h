// How rows came to the experts of a job's layers in one attempt: by layer and expert over its newest steps, and how uneven
// they were over the whole attempt, beside what the stages took meanwhile.
//
// Rows are those of all ranks together: of stages that two ranks hold, and of pipelines side by side. Where nothing is
// dropped they add up to tokens x experts per token, in every layer and step.
// Newest: the last kLoadWindow to twice as many steps. History: single steps, evenly apart; when there are kLoadHistory of
// them every other one goes, and the next ones are twice as far apart. A single step is as noisy as it is: whoever reads a
// history ranks its values (plan/diagnosis/routing_drift.h).
// Limits: what the experts of a model can be (24,576 in all its layers), and kLoadHistory points a layer and stage.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/ids.h"
#include "proto/codec/messages.h"

namespace penstock::coordinator {

inline constexpr int64_t kLoadWindow = 64;
inline constexpr size_t kLoadHistory = 128;

struct LayerLoad {
  LayerIndex layer{};
  StageIndex stage{};
  int64_t steps = 0;            // the newest, over which rows are added up
  std::vector<int64_t> rows{};  // [expert]
  // At the history's steps: rows of the busiest expert to those of the mean one; 0: no row came.
  std::vector<float> ratio{};

  bool operator==(const LayerLoad&) const = default;
};

struct StageHistory {
  StageIndex stage{};
  std::vector<float> seconds{};  // forward and backward of a microbatch, of its slowest rank
  // Rows of its busiest rank to those of the mean one, where ranks share its experts out; else the mean of its layers' ratios.
  std::vector<float> load{};

  bool operator==(const StageHistory&) const = default;
};

struct LoadHistory {
  std::vector<int64_t> steps{};
  std::vector<StageHistory> stages{};  // those with experts

  bool operator==(const LoadHistory&) const = default;
};

// The greatest to the mean; 0 where all are 0.
double busiest_to_mean(const std::vector<int64_t>& rows);

// Rows by expert of every layer in one step, of all ranks together.
struct LayerRows {
  StageIndex stage{};
  std::vector<int64_t> rows{};  // [expert]
};
std::map<LayerIndex, LayerRows> rows_by_layer(const std::vector<StepReport>& reports);

// Takes the steps of one attempt, one after the other.
class ExpertLoadRecorder {
 public:
  // Reports of one step, by rank, whose layers and experts are the model's.
  void add(const std::vector<StepReport>& reports, std::vector<LayerLoad>& layers, LoadHistory& history);

 private:
  void add_rows(const std::map<LayerIndex, LayerRows>& step, std::vector<LayerLoad>& layers);
  void add_to_history(const std::vector<StepReport>& reports, const std::map<LayerIndex, LayerRows>& step,
                      std::vector<LayerLoad>& layers, LoadHistory& history);
  void thin_out(std::vector<LayerLoad>& layers, LoadHistory& history);

  std::map<LayerIndex, std::vector<int64_t>> newest_{};  // rows of the window that is not full yet
  int64_t newest_steps_ = 0;
  int64_t seen_ = 0;
  int64_t stride_ = 1;  // of the history, in steps
};

}  // namespace penstock::coordinator
