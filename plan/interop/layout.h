// How a model's layers lie on the stages of a pipeline, as Megatron-LM and torchtitan write it, both ways.
//
// Megatron (--pipeline-model-parallel-layout): E embedding, t decoder layer, m multi-token prediction layer,
// L loss; '|' separates stages; commas are dropped; "(tt|)*3" and "t*3" repeat, by replacing text, brackets
// first. Stage i stands on pipeline rank i mod P, the loop placement; empty stages are allowed.
//     Et*3|(tt|)*29,m|L
// torchtitan (module_fqns_per_model_part): a list a stage of tok_embeddings, layers.N, norm and lm_head.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {

// The letters that Megatron uses for them.
enum class LayoutItem : char { Embedding = 'E', Decoder = 't', MultiTokenPrediction = 'm', Loss = 'L' };

using Layout = std::vector<std::vector<LayoutItem>>;  // [stage], in model order

struct LayoutShape {
  int ranks = 1;                      // P
  std::optional<int> num_layers;      // decoder layers; not said: as many as there are
  std::optional<int> mtp_num_layers;  // multi-token prediction layers; likewise
};

// Expands a Megatron string as Megatron does, oddities included, to at most 2^20 characters. InvalidArgument
// names the character in the text, counted from 1, and the reason.
StatusOr<Layout> parse_megatron_layout(std::string_view text);

// A layout in any of its forms, told apart by the content: a Megatron string, or a JSON list of lists of
// Megatron's names (embedding, decoder, mtp, loss), of torchtitan's, or of a job file's items (embedding, 0,
// 1, ..., head). At most 16 MiB. InvalidArgument names the character or the entry: "[2][0]: ...".
StatusOr<Layout> parse_layout(const std::string& text);

// The checks of Megatron's own validator: the number of stages is a multiple of the ranks; E once and first,
// L once and last; the counts of layers; no t behind an m; all m in one stage, and that the last one of its
// rank. InvalidArgument names the stage.
Status check_megatron_layout(const Layout& layout, const LayoutShape& shape);

// A string that expands to the layout, with runs of equal stages and of equal items written as repetitions.
std::string megatron_layout(const Layout& layout);

// A layout item is an item of the split, L being the head. InvalidArgument for what a split cannot say: an
// empty stage, multi-token prediction, items out of order.
StatusOr<Split> split_from_layout(const Layout& layout);
Layout layout_from_split(const Split& split);

// JSON, a stage a line. torchtitan's lists, in which the head is norm and lm_head; and the split as a job
// file takes it.
std::string torchtitan_parts(const Split& split);
std::string split_to_json(const Split& split);

}  // namespace penstock::plan
