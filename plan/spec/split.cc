#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "plan/spec/internal/section.h"
#include "plan/spec/internal/split_reader.h"
#include "plan/spec/job_spec.h"

namespace penstock::plan {
namespace {

constexpr const char* kField = "parallel.split";

// `total` shared out equally over `stages`, the remainder in the middle ones.
std::vector<int64_t> equal_counts(int64_t total, int stages) {
  std::vector<int64_t> counts(static_cast<size_t>(stages), total / stages);
  const int64_t remainder = total % stages;
  const int64_t first = (stages - remainder) / 2;
  for (int64_t i = first; i < first + remainder; ++i) ++counts[static_cast<size_t>(i)];
  return counts;
}

// Cuts the model's items into stages of the given counts of items.
Split cut(const ModelSpec& model, const std::vector<int64_t>& counts) {
  const std::vector<Item> items = model_items(model);
  Split split;
  auto next = items.begin();
  for (const int64_t count : counts) {
    split.emplace_back(next, next + count);
    next += count;
  }
  return split;
}

std::string found_item(const std::vector<Item>& items, size_t place) {
  return place < items.size() ? to_string(items[place]) : "the end";
}

// Where a split first leaves model order: stage, position in it, and a sentence.
struct SplitFault {
  size_t stage = 0;
  size_t position = 0;
  std::string expected;
  std::string found;
};

std::optional<SplitFault> first_fault(const ModelSpec& model, const Split& split) {
  const std::vector<Item> items = model_items(model);
  size_t next = 0;
  for (size_t stage = 0; stage < split.size(); ++stage) {
    if (split[stage].empty()) return SplitFault{stage, 0, "at least one item in every stage", "none"};
    for (size_t position = 0; position < split[stage].size(); ++position) {
      const Item& item = split[stage][position];
      if (next < items.size() && item == items[next]) {
        ++next;
        continue;
      }
      const bool known = std::find(items.begin(), items.end(), item) != items.end();
      const bool seen = std::find(items.begin(), items.begin() + static_cast<ptrdiff_t>(next), item) !=
                        items.begin() + static_cast<ptrdiff_t>(next);
      const std::string what = !known ? " (the model has no such block)" : seen ? " again" : "";
      return SplitFault{stage, position, fmt::format("{} next in model order", found_item(items, next)),
                        to_string(item) + what};
    }
  }
  if (next == items.size()) return std::nullopt;
  return SplitFault{split.size() - 1, split.back().size(),
                    fmt::format("every item; {} is missing", to_string(items[next])),
                    fmt::format("{} of {} items", next, items.size())};
}

class SplitReader {
 public:
  SplitReader(const ModelSpec& model, int stages, Problems& problems)
      : model_(model), stages_(stages), problems_(problems) {}

  Split named(const YamlNode& node) {
    static const std::vector<std::string> kNames = {"auto", "last-lighter", "ends-lighter"};
    // Llama 3 leaves one block out at both ends, for the embedding and the head: equal counts of items do
    // just that.
    if (node.text == "auto" || node.text == "ends-lighter") return automatic_split(model_, stages_);
    if (node.text == "last-lighter" && stages_ <= model_.num_hidden_layers + 1) {
      return last_lighter_split(model_, stages_);
    }
    if (node.text == "last-lighter") {
      problems_.expected(node.line, kField,
                         fmt::format("at most {} stages for last-lighter", model_.num_hidden_layers + 1),
                         fmt::format("{}", stages_));
      return {};
    }
    problems_.expected(
        node.line, kField,
        "auto, last-lighter, ends-lighter, {layers: [blocks per stage]} or a list of items per stage",
        node.shown(), nearest_name(node.text, kNames));
    return {};
  }

  Split counted(const YamlNode& node) {
    Section section(node, kField, node.line, problems_);
    const YamlNode::Entry* layers = section.entry("layers", Need::Required);
    section.finish();
    if (layers == nullptr) return {};
    const std::string field = std::string(kField) + ".layers";
    if (!has_a_value_per_stage(layers->value, field)) return {};

    std::vector<int64_t> counts;
    int64_t sum = 0;
    for (size_t stage = 0; stage < layers->value.items.size(); ++stage) {
      // The ends hold embedding and head; a stage between them without a block would hold nothing.
      const bool at_an_end = stage == 0 || stage + 1 == layers->value.items.size();
      int64_t count = 0;
      if (!read_integer(layers->value.items[stage], fmt::format("{}[{}]", field, stage),
                        {at_an_end ? 0 : 1, model_.num_hidden_layers}, count, problems_)) {
        return {};
      }
      sum += count;
      counts.push_back(count);
    }
    if (sum != model_.num_hidden_layers) {
      problems_.expected(layers->line, field, fmt::format("{} blocks in all", model_.num_hidden_layers),
                         fmt::format("{}", sum));
      return {};
    }
    ++counts.front();
    ++counts.back();
    return cut(model_, counts);
  }

  Split listed(const YamlNode& node) {
    if (!has_a_value_per_stage(node, kField)) return {};
    Split split;
    for (size_t stage = 0; stage < node.items.size(); ++stage) {
      const YamlNode& items = node.items[stage];
      const std::string field = fmt::format("{}[{}]", kField, stage);
      if (!items.is(YamlNode::Kind::List)) {
        problems_.expected(items.line, field, "a list of items, as [embedding, 0]", items.shown());
        return {};
      }
      split.emplace_back();
      for (size_t position = 0; position < items.items.size(); ++position) {
        const YamlNode& item = items.items[position];
        const StatusOr<Item> parsed = parse_item(item.is(YamlNode::Kind::Scalar) ? item.text : "");
        if (!parsed.ok()) {
          problems_.expected(item.line, fmt::format("{}[{}]", field, position),
                             "embedding, head or the number of a block", item.shown(),
                             nearest_name(item.text, std::vector<std::string>{"embedding", "head"}));
          return {};
        }
        split.back().push_back(*parsed);
      }
    }
    return in_model_order(node, split) ? split : Split{};
  }

 private:
  bool has_a_value_per_stage(const YamlNode& list, const std::string& field) {
    if (list.is(YamlNode::Kind::List) && list.items.size() == static_cast<size_t>(stages_)) return true;
    problems_.expected(list.line, field,
                       fmt::format("a list of {}, one entry a stage (pipeline x stages_per_rank)", stages_),
                       list.shown());
    return false;
  }

  bool in_model_order(const YamlNode& node, const Split& split) {
    const std::optional<SplitFault> fault = first_fault(model_, split);
    if (!fault) return true;
    const YamlNode& stage = node.items[fault->stage];
    const bool at_an_item = fault->position < stage.items.size();
    std::string field = fmt::format("{}[{}]", kField, fault->stage);
    if (at_an_item) field += fmt::format("[{}]", fault->position);
    problems_.expected(at_an_item ? stage.items[fault->position].line : stage.line, field, fault->expected,
                       fault->found);
    return false;
  }

  const ModelSpec& model_;
  int stages_;
  Problems& problems_;
};

}  // namespace

std::string to_string(const Item& item) {
  switch (item.kind) {
    case ItemKind::Embedding:
      return "embedding";
    case ItemKind::Block:
      return fmt::format("{}", item.layer.value);
    case ItemKind::Head:
      return "head";
  }
  return "";
}

StatusOr<Item> parse_item(const std::string& text) {
  if (text == "embedding") return Item{ItemKind::Embedding, {}};
  if (text == "head") return Item{ItemKind::Head, {}};
  int32_t layer = -1;
  const char* last = text.data() + text.size();
  const auto result = std::from_chars(text.data(), last, layer);
  // One spelling only: "007" or "+7" would be another text for the same block.
  if (result.ec != std::errc() || result.ptr != last || layer < 0 || fmt::format("{}", layer) != text) {
    return invalid_argument("item: expected embedding, head or the number of a block, found \"{}\"",
                            shown_value(text));
  }
  return Item{ItemKind::Block, LayerIndex(layer)};
}

std::vector<Item> model_items(const ModelSpec& model) {
  std::vector<Item> items = {Item{ItemKind::Embedding, {}}};
  for (int64_t layer = 0; layer < model.num_hidden_layers; ++layer) {
    items.push_back(Item{ItemKind::Block, LayerIndex(layer)});
  }
  items.push_back(Item{ItemKind::Head, {}});
  return items;
}

Status check_split(const ModelSpec& model, const Split& split) {
  if (split.empty()) return invalid_argument("split: expected at least one stage, found none");
  const std::optional<SplitFault> fault = first_fault(model, split);
  if (!fault) return ok_status();
  return invalid_argument("split[{}]: expected {}, found {}", fault->stage, fault->expected, fault->found);
}

Split automatic_split(const ModelSpec& model, int stages) {
  PENSTOCK_CHECK(stages >= 1 && stages <= model.num_hidden_layers + 2, "{} stages for {} blocks", stages,
                 model.num_hidden_layers);
  return cut(model, equal_counts(model.num_hidden_layers + 2, stages));
}

Split last_lighter_split(const ModelSpec& model, int stages) {
  PENSTOCK_CHECK(stages >= 1 && stages <= model.num_hidden_layers + 1, "{} stages for {} blocks", stages,
                 model.num_hidden_layers);
  // The head takes the place of a block in the last stage's count; the embedding comes on top of the first's.
  std::vector<int64_t> counts = equal_counts(model.num_hidden_layers + 1, stages);
  ++counts.front();
  return cut(model, counts);
}

Split read_split(const YamlNode::Entry* entry, const ModelSpec& model, int stages, Problems& problems) {
  if (entry == nullptr) return automatic_split(model, stages);
  SplitReader reader(model, stages, problems);
  switch (entry->value.kind) {
    case YamlNode::Kind::Scalar:
      return reader.named(entry->value);
    case YamlNode::Kind::Map:
      return reader.counted(entry->value);
    case YamlNode::Kind::List:
      return reader.listed(entry->value);
    case YamlNode::Kind::Null:
      break;
  }
  problems.expected(entry->line, kField, "auto or a list of items per stage", "nothing");
  return {};
}

}  // namespace penstock::plan
