#include "plan/spec/parameter_count.h"

#include <map>

#include "plan/spec/parameters.h"

namespace penstock::plan {
namespace {

void add(const ParameterSpec& parameter, ParameterCount& count) {
  (parameter.is_dense() ? count.dense : count.experts) += parameter.elements();
}

}  // namespace

ParameterCount count_parameters(const ModelSpec& model) {
  ParameterCount count;
  for (const ParameterSpec& parameter : model_parameters(model)) add(parameter, count);
  return count;
}

std::vector<ParameterCount> parameters_of_stages(const JobSpec& job) {
  std::map<Item, size_t> stage_of;
  for (size_t stage = 0; stage < job.parallel.split.size(); ++stage) {
    for (const Item& item : job.parallel.split[stage]) stage_of[item] = stage;
  }
  std::vector<ParameterCount> stages(job.parallel.split.size());
  for (const ParameterSpec& parameter : model_parameters(job.model))
    add(parameter, stages[stage_of.at(parameter.item)]);
  for (ParameterCount& stage : stages) stage.experts /= job.parallel.expert;  // a divisor of their number
  return stages;
}

double rough_parameters_of_rank(const JobSpec& job) {
  const ParameterCount model = count_parameters(job.model);
  return (static_cast<double>(model.dense) + static_cast<double>(model.experts) / job.parallel.expert) /
         job.parallel.pipeline;
}

}  // namespace penstock::plan
