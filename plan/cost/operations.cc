#include "plan/cost/operations.h"

#include "plan/cost/slot_bytes.h"
#include "plan/spec/network_widths.h"
#include "plan/spec/parameters.h"

namespace penstock::plan {
namespace {

constexpr double kFlopsPerProduct = 2;  // a multiplication and an addition
constexpr double kMasterBytes = 4;      // weights, gradients and moments are float32

// A job in the letters of the header.
struct Shape {
  double tokens, sequence, hidden, query, key_value, vocabulary, element;

  explicit Shape(const JobSpec& job)
      : tokens(static_cast<double>(job.tokens_per_microbatch())),
        sequence(static_cast<double>(job.data.sequence_length)),
        hidden(static_cast<double>(job.model.hidden_size)),
        query(static_cast<double>(job.model.num_attention_heads * job.model.head_size())),
        key_value(static_cast<double>(job.model.num_key_value_heads * job.model.head_size())),
        vocabulary(static_cast<double>(job.model.vocab_size)),
        element(job.train.dtype == "bfloat16" ? 2 : 4) {}
};

double swiglu_flops(double rows, double hidden, int64_t intermediate) {
  return 3 * kFlopsPerProduct * rows * hidden * static_cast<double>(intermediate);
}

double network_flops(const JobSpec& job, const Item& item, const Shape& shape) {
  const ModelSpec& model = job.model;
  if (!model.has_experts(item.layer))
    return swiglu_flops(shape.tokens, shape.hidden, model.intermediate_size);
  const double router =
      kFlopsPerProduct * shape.tokens * shape.hidden * static_cast<double>(model.moe.num_experts);
  const auto rows = static_cast<double>(job.expert_rows() * job.expert_parts());
  return router + swiglu_flops(rows, shape.hidden, model.moe.moe_intermediate_size) +
         swiglu_flops(shape.tokens, shape.hidden, shared_intermediate_size(model));
}

// Of the item on one rank: experts are shared out.
double weights_of(const JobSpec& job, const Item& item) {
  double dense = 0, experts = 0;
  for (const ParameterSpec& parameter : parameters_of(job.model, {item}))
    (parameter.is_dense() ? dense : experts) += static_cast<double>(parameter.elements());
  return dense + experts / job.parallel.expert;
}

ItemOperations of_embedding(const Shape& shape) {
  const double elements = shape.tokens * shape.hidden;
  ItemOperations operations;
  operations.forward.bytes = elements * (kMasterBytes + shape.element);
  operations.backward.bytes = elements * (2 * kMasterBytes + shape.element);
  return operations;
}

// What passes through memory passes there, kept or not. Slots have room for all rows that may come to a rank's experts; of them
// the even share comes.
double slot_of_block(const JobSpec& job, const Item& item) {
  JobSpec keeping = job;
  keeping.recompute.clear();
  const auto slot = static_cast<double>(activation_slot_bytes(keeping, {item}, BackwardForm::Fused));
  if (!job.model.has_experts(item.layer)) return slot;
  const auto payload = static_cast<double>(payload_slot_bytes(keeping, item));
  const auto room = static_cast<double>(expert_gate_up_bytes(keeping)) + payload;
  const double coming = static_cast<double>(job.expert_rows()) / static_cast<double>(job.local_expert_rows());
  return slot + payload - room * (1 - coming);
}

ItemOperations of_block(const JobSpec& job, const Item& item, const Shape& shape, double weights) {
  const double projections =
      kFlopsPerProduct * shape.tokens * shape.hidden * 2 * (shape.query + shape.key_value);
  // Scores and weighted values; a token attends to (S + 1) / 2 on average.
  const double attention = kFlopsPerProduct * shape.tokens * (shape.sequence + 1) * shape.query;
  const double network = network_flops(job, item, shape);
  const double slot = slot_of_block(job, item);
  ItemOperations operations;
  operations.forward = {projections + attention + network, shape.element * weights + 2 * slot};
  operations.backward = {2 * (projections + network) + 2.5 * attention,
                         (shape.element + 2 * kMasterBytes) * weights + 3 * slot};
  if (job.recomputes(item.layer)) operations.backward += operations.forward;
  return operations;
}

ItemOperations of_head(const JobSpec& job, const Item& item, const Shape& shape) {
  const double weights = shape.hidden * shape.vocabulary;  // of the tied matrix too, which is the embedding's
  const auto slot = static_cast<double>(activation_slot_bytes(job, {item}, BackwardForm::Fused));
  const double logits = shape.tokens * shape.vocabulary * (3 * kMasterBytes + 3 * shape.element);
  ItemOperations operations;
  operations.forward = {3 * kFlopsPerProduct * shape.tokens * weights,
                        (2 * shape.element + 2 * kMasterBytes) * weights + 2 * slot + logits};
  operations.backward.bytes = 2 * slot;
  return operations;
}

ItemOperations passes_of(const JobSpec& job, const Item& item, const Shape& shape, double weights) {
  switch (item.kind) {
    case ItemKind::Embedding:
      return of_embedding(shape);
    case ItemKind::Block:
      return of_block(job, item, shape, weights);
    case ItemKind::Head:
      return of_head(job, item, shape);
  }
  return {};
}

}  // namespace

Operations& Operations::operator+=(const Operations& other) {
  flops += other.flops;
  bytes += other.bytes;
  return *this;
}

double seconds_of(const Operations& operations, const DeviceRates& rates) {
  return operations.flops / rates.flops_per_second + operations.bytes / rates.bytes_per_second;
}

ItemOperations operations_of(const JobSpec& job, const Item& item) {
  const Shape shape(job);
  const double weights = weights_of(job, item);
  ItemOperations operations = passes_of(job, item, shape, weights);
  operations.update.bytes = weights * (8 * kMasterBytes + 2 * shape.element);
  if (job.parallel.shard_optimizer) operations.update.bytes /= job.parallel.pipelines();
  return operations;
}

}  // namespace penstock::plan
