#include "plan/interop/layout.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "client/commands/commands.h"
#include "client/commands/job_file.h"
#include "client/commands/terminal.h"
#include "client/present/job_words.h"
#include "plan/render/human.h"
#include "plan/render/table.h"

namespace penstock::client {
namespace {

using plan::Layout;
using plan::LayoutItem;

constexpr size_t kLayoutFileBytesMax = size_t{16} << 20;

struct Found {
  Layout layout;
  std::optional<int> ranks;  // where a job file says so
};

StatusOr<Found> read_layout(const std::string& given) {
  if (given.ends_with(".yaml") || given.ends_with(".yml")) {
    PENSTOCK_ASSIGN_OR_RETURN(const JobFile job, read_job_file(given));
    return Found{plan::layout_from_split(job.spec.parallel.split), job.spec.parallel.pipeline};
  }
  std::string text = given;
  if (given.ends_with(".json")) {
    PENSTOCK_ASSIGN_OR_RETURN(text, read_file(given, kLayoutFileBytesMax));
  }
  StatusOr<Layout> layout = plan::parse_layout(text);
  if (!layout.ok()) return with_context(layout.status(), text == given ? "layout" : given);
  return Found{*std::move(layout), std::nullopt};
}

int count_of(const Layout& layout, LayoutItem item) {
  int64_t count = 0;
  for (const auto& stage : layout) count += std::count(stage.begin(), stage.end(), item);
  return static_cast<int>(count);
}

// "embedding, layers 0 to 3", and so on; layers are numbered through the stages.
std::string items_text(const std::vector<LayoutItem>& stage, int first_layer) {
  std::vector<std::string> parts;
  const auto holds = [&](LayoutItem item) {
    return static_cast<int>(std::count(stage.begin(), stage.end(), item));
  };
  if (holds(LayoutItem::Embedding) > 0) parts.emplace_back("embedding");
  const int layers = holds(LayoutItem::Decoder);
  if (layers == 1) parts.push_back(fmt::format("layer {}", first_layer));
  if (layers > 1) parts.push_back(fmt::format("layers {} to {}", first_layer, first_layer + layers - 1));
  const int predictions = holds(LayoutItem::MultiTokenPrediction);
  if (predictions > 0) parts.push_back(plan::counted(predictions, "multi-token prediction layer"));
  if (holds(LayoutItem::Loss) > 0) parts.emplace_back("head and loss");
  return parts.empty() ? "nothing" : join(parts);
}

std::string layout_text(const Layout& layout, int ranks) {
  using plan::counted;
  std::string text = fmt::format(
      "{} on {}, {} a rank: {}, {}\n", counted(static_cast<int64_t>(layout.size()), "stage"),
      counted(ranks, "rank"), layout.size() / static_cast<size_t>(ranks),
      counted(count_of(layout, LayoutItem::Decoder), "decoder layer"),
      counted(count_of(layout, LayoutItem::MultiTokenPrediction), "multi-token prediction layer"));
  plan::Table table({{"STAGE", plan::Table::Align::Right}, {"RANK", plan::Table::Align::Right}, {"HOLDS"}});
  int layer = 0;
  for (size_t stage = 0; stage < layout.size(); ++stage) {
    table.add_row({fmt::format("{}", stage), fmt::format("{}", stage % static_cast<size_t>(ranks)),
                   items_text(layout[stage], layer)});
    layer += static_cast<int>(std::count(layout[stage].begin(), layout[stage].end(), LayoutItem::Decoder));
  }
  return text + table.text() + "Megatron: " + plan::megatron_layout(layout) + "\n";
}

// Lists over several lines on one.
std::string on_one_line(std::string lists) {
  lists.erase(std::remove(lists.begin(), lists.end(), '\n'), lists.end());
  return lists;
}

std::string layout_json(const Layout& layout, int ranks) {
  const StatusOr<plan::Split> split = plan::split_from_layout(layout);
  return fmt::format(
      "{{\n  \"pipeline\": {},\n  \"stages_per_rank\": {},\n  \"num_layers\": {},\n  \"mtp_num_layers\": {},\n"
      "  \"megatron\": \"{}\",\n  \"split\": {},\n  \"torchtitan\": {}\n}}\n",
      ranks, layout.size() / static_cast<size_t>(ranks), count_of(layout, LayoutItem::Decoder),
      count_of(layout, LayoutItem::MultiTokenPrediction), plan::megatron_layout(layout),
      split.ok() ? on_one_line(plan::split_to_json(*split)) : "null",
      split.ok() ? on_one_line(plan::torchtitan_parts(*split)) : "null");
}

StatusOr<std::string> layout_output(const LayoutOptions& options) {
  PENSTOCK_ASSIGN_OR_RETURN(const Found found, read_layout(options.layout));
  const int ranks = options.pipeline.value_or(found.ranks.value_or(static_cast<int>(found.layout.size())));
  const Status valid = plan::check_megatron_layout(
      found.layout,
      {.ranks = ranks, .num_layers = options.num_layers, .mtp_num_layers = options.mtp_num_layers});
  if (!valid.ok()) return with_context(valid, "layout");
  if (options.output == "text") return layout_text(found.layout, ranks);
  if (options.output == "json") return layout_json(found.layout, ranks);
  if (options.output == "megatron") return plan::megatron_layout(found.layout) + "\n";
  const StatusOr<plan::Split> split = plan::split_from_layout(found.layout);
  if (!split.ok()) return with_context(split.status(), "-o " + options.output);
  return options.output == "split" ? plan::split_to_json(*split) : plan::torchtitan_parts(*split);
}

}  // namespace

int layout(const LayoutOptions& options) {
  const StatusOr<std::string> output = layout_output(options);
  if (!output.ok()) return report_error(output.status());
  print(*output);
  return kExitSucceeded;
}

}  // namespace penstock::client
