#include "plan/interop/layout.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "plan/schedule/limits.h"

namespace penstock::plan {
namespace {

using Json = nlohmann::json;

constexpr size_t kTextBytesMax = size_t{16} << 20;

std::string shown(const Json& value) {
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr size_t kShown = 40;
  return text.size() <= kShown ? text : text.substr(0, kShown) + "...";
}

std::string lower_case(std::string_view text) {
  std::string lower(trim(text));
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

std::optional<int64_t> number_in(std::string_view digits) {
  int64_t value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

// Whose names a list uses. They do not mix.
enum class Names : uint8_t { Any, Megatron, Torchtitan, JobFile };

enum class Part : uint8_t { Embedding, Layer, MultiTokenPrediction, Norm, Projection, Head };

struct Entry {
  Names names = Names::Any;
  Part part = Part::Layer;
  std::optional<int64_t> number;  // of a layer
};

std::optional<Entry> named_entry(const std::string& word) {
  static const std::pair<const char*, Entry> kWords[] = {
      {"embedding", {Names::Any, Part::Embedding, {}}},
      {"decoder", {Names::Megatron, Part::Layer, {}}},
      {"mtp", {Names::Megatron, Part::MultiTokenPrediction, {}}},
      {"loss", {Names::Megatron, Part::Head, {}}},
      {"tok_embeddings", {Names::Torchtitan, Part::Embedding, {}}},
      {"norm", {Names::Torchtitan, Part::Norm, {}}},
      {"lm_head", {Names::Torchtitan, Part::Projection, {}}},
      {"head", {Names::JobFile, Part::Head, {}}},
  };
  for (const auto& [name, entry] : kWords) {
    if (lower_case(word) == name) return entry;
  }
  constexpr std::string_view kLayers = "layers.";
  if (word.starts_with(kLayers)) {
    const auto number = number_in(std::string_view(word).substr(kLayers.size()));
    return number ? std::optional<Entry>({Names::Torchtitan, Part::Layer, number}) : std::nullopt;
  }
  const auto number = number_in(word);
  return number ? std::optional<Entry>({Names::JobFile, Part::Layer, number}) : std::nullopt;
}

std::optional<Entry> entry_of(const Json& value) {
  if (value.is_string()) return named_entry(value.get_ref<const std::string&>());
  if (value.is_number_integer() && value.get<int64_t>() >= 0) {
    return Entry{Names::JobFile, Part::Layer, value.get<int64_t>()};
  }
  return std::nullopt;
}

class ListReader {
 public:
  StatusOr<Layout> read(const Json& list) {
    if (!list.is_array() || list.empty() || list.size() > static_cast<size_t>(limits::kStages)) {
      return invalid_argument("expected a list of 1 to {} stages, found {}", limits::kStages, shown(list));
    }
    for (size_t stage = 0; stage < list.size(); ++stage) {
      PENSTOCK_RETURN_IF_ERROR(read_stage(list[stage], fmt::format("[{}]", stage)));
    }
    return std::move(layout_);
  }

 private:
  Status read_stage(const Json& list, const std::string& where) {
    if (!list.is_array())
      return invalid_argument("{}: expected the list of a stage's items, found {}", where, shown(list));
    layout_.emplace_back();
    has_norm_ = false;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::optional<Entry> entry = entry_of(list[i]);
      const Status status = entry ? add(*entry) : invalid_argument("expected {}", kExpected);
      if (!status.ok())
        return invalid_argument("{}[{}]: {}, found {}", where, i, message(status), shown(list[i]));
    }
    if (!has_norm_) return ok_status();
    return invalid_argument("{}: expected lm_head behind norm: the head of a split is both", where);
  }

  Status add(const Entry& entry) {
    if (entry.names != Names::Any && names_ != Names::Any && entry.names != names_) {
      return invalid_argument("expected names of one kind: {}", kExpected);
    }
    if (names_ == Names::Any) names_ = entry.names;
    if (has_norm_ != (entry.part == Part::Projection)) {
      return invalid_argument("expected norm and lm_head behind each other: the head of a split is both");
    }
    switch (entry.part) {
      case Part::Embedding:
        layout_.back().push_back(LayoutItem::Embedding);
        return ok_status();
      case Part::Layer:
        return add_layer(entry.number);
      case Part::MultiTokenPrediction:
        layout_.back().push_back(LayoutItem::MultiTokenPrediction);
        return ok_status();
      case Part::Norm:
        has_norm_ = true;
        return ok_status();
      case Part::Projection:
      case Part::Head:
        has_norm_ = false;
        layout_.back().push_back(LayoutItem::Loss);
        return ok_status();
    }
    return ok_status();
  }

  Status add_layer(std::optional<int64_t> number) {
    if (number && *number != layers_)
      return invalid_argument("expected layer {} next in model order", layers_);
    ++layers_;
    layout_.back().push_back(LayoutItem::Decoder);
    return ok_status();
  }

  static constexpr const char* kExpected =
      "embedding, decoder, mtp, loss (Megatron), tok_embeddings, layers.N, norm, lm_head (torchtitan), or embedding, "
      "0, 1, ..., head";

  Layout layout_;
  Names names_ = Names::Any;
  int64_t layers_ = 0;
  bool has_norm_ = false;  // and not yet lm_head
};

StatusOr<Layout> parse_list(const std::string& text) {
  try {
    return ListReader().read(Json::parse(text));
  } catch (const Json::exception& failure) {
    return invalid_argument("not JSON: {}", failure.what());
  }
}

template <typename Write>
std::string lists(const Split& split, Write&& write) {
  std::string text;
  for (const auto& stage : split) {
    std::vector<std::string> names;
    for (const Item& item : stage) names.push_back(write(item));
    text += (text.empty() ? "[[" : ",\n [") + join(names) + "]";
  }
  return text + "]\n";
}

}  // namespace

StatusOr<Layout> parse_layout(const std::string& text) {
  if (text.size() > kTextBytesMax)
    return invalid_argument("expected at most {} bytes, found {}", kTextBytesMax, text.size());
  const std::string_view trimmed = trim(text);
  return trimmed.starts_with('[') ? parse_list(text) : parse_megatron_layout(trimmed);
}

StatusOr<Split> split_from_layout(const Layout& layout) {
  Split split;
  ModelSpec model;
  for (size_t stage = 0; stage < layout.size(); ++stage) {
    auto& items = split.emplace_back();
    for (const LayoutItem item : layout[stage]) {
      switch (item) {
        case LayoutItem::Embedding:
          items.push_back({ItemKind::Embedding, {}});
          break;
        case LayoutItem::Decoder:
          items.push_back({ItemKind::Block, LayerIndex(model.num_hidden_layers++)});
          break;
        case LayoutItem::MultiTokenPrediction:
          return invalid_argument("stage {}: a split has no multi-token prediction (m)", stage);
        case LayoutItem::Loss:
          items.push_back({ItemKind::Head, {}});
          break;
      }
    }
  }
  PENSTOCK_RETURN_IF_ERROR(check_split(model, split));
  return split;
}

Layout layout_from_split(const Split& split) {
  Layout layout;
  for (const auto& items : split) {
    auto& stage = layout.emplace_back();
    for (const Item& item : items) {
      stage.push_back(item.kind == ItemKind::Embedding ? LayoutItem::Embedding
                      : item.kind == ItemKind::Block   ? LayoutItem::Decoder
                                                       : LayoutItem::Loss);
    }
  }
  return layout;
}

std::string torchtitan_parts(const Split& split) {
  return lists(split, [](const Item& item) -> std::string {
    if (item.kind == ItemKind::Block) return fmt::format("\"layers.{}\"", item.layer.value);
    return item.kind == ItemKind::Embedding ? "\"tok_embeddings\"" : "\"norm\", \"lm_head\"";
  });
}

std::string split_to_json(const Split& split) {
  return lists(split, [](const Item& item) {
    return item.kind == ItemKind::Block ? to_string(item) : "\"" + to_string(item) + "\"";
  });
}

}  // namespace penstock::plan
