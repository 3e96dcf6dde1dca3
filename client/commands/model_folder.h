// A Hugging Face folder as the commands use it: its model, and its tensors held against it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/safetensors/folder.h"
#include "base/status.h"
#include "plan/spec/parameters.h"

namespace penstock::client {

struct ModelFolder {
  std::string path;  // absolute
  plan::ModelSpec model;
  std::vector<plan::ParameterSpec> parameters;  // in model order
  TensorFolder tensors;                         // exactly those, names, shapes and dtypes checked

  int64_t elements() const;      // of all parameters
  int64_t stored_bytes() const;  // of all tensors
};

// Reads config.json and the headers. Errors name file, and key or tensor.
StatusOr<ModelFolder> open_model_folder(const std::string& path);

// Calls `take` with the values of one parameter, piece by piece, as float32; ends at its first error. `take` may
// change what it is given.
Status read_parameter(const ModelFolder& folder, const plan::ParameterSpec& parameter,
                      const std::function<Status(std::span<float>)>& take);

// InvalidArgument with file, tensor and offset unless all of the piece is finite. `first`: of the piece in the tensor.
Status check_finite(const TensorPlace& place, int64_t first, std::span<const float> values);

}  // namespace penstock::client
