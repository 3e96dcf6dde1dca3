// The model that the step is measured on, and the matrix products that one microbatch of it needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/tensor/tensor.h"
#include "tests/perf/measure/product.h"

namespace penstock::perf {

// A small Llama. The batch is eight microbatches of four sequences, as pipelines are measured with.
struct StepShape {
  int64_t hidden = 512;
  int64_t layers = 8;
  int64_t heads = 8;
  int64_t intermediate = 1408;
  int64_t vocabulary = 32000;
  int64_t sequence_length = 256;
  int64_t microbatch_size = 4;
  int64_t microbatches = 8;
  kernels::DataType type = kernels::DataType::BFloat16;

  int64_t tokens() const { return microbatch_size * sequence_length; }  // of a microbatch
  std::string dtype() const { return type == kernels::DataType::BFloat16 ? "bfloat16" : "float32"; }
};

// Every product that the mathematics asks for, once: for each linear layer output, input gradient and weight gradient
// (those of one input as one product, which is the faster way); the logits and their two gradients; and attention's
// products over the causal half of the scores, in tiles of 64 queries: scores, their values, and in the backward the
// scores again (they are not stored), the gradients of the probabilities, and those of values, keys and queries.
std::vector<Product> products_of_microbatch(const StepShape& shape);

}  // namespace penstock::perf
