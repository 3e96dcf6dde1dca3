#include <algorithm>
#include <charconv>

#include "plan/interop/layout.h"

namespace penstock::plan {
namespace {

constexpr size_t kExpandedMax = size_t{1} << 20;

// A character with its place in the text as it was given, which it keeps when it is repeated.
struct Placed {
  char character = 0;
  int position = 0;  // from 1
};
using Text = std::vector<Placed>;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

Text without_commas(std::string_view given) {
  Text text;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != ',') text.push_back({given[i], static_cast<int>(i) + 1});
  }
  return text;
}

// "*" and a number at `at`: how often, and where it ends.
struct Repetition {
  size_t times = 0;
  size_t end = 0;
};

std::optional<Repetition> repetition_at(const Text& text, size_t at) {
  if (at + 1 >= text.size() || text[at].character != '*' || !is_digit(text[at + 1].character))
    return std::nullopt;
  Repetition repetition{0, at + 1};
  for (; repetition.end < text.size() && is_digit(text[repetition.end].character); ++repetition.end) {
    const size_t digit = static_cast<size_t>(text[repetition.end].character - '0');
    repetition.times = std::min(repetition.times * 10 + digit, kExpandedMax + 1);
  }
  return repetition;
}

Status append(Text& text, const Text& piece, size_t times) {
  if (times > 0 && piece.size() > (kExpandedMax - std::min(text.size(), kExpandedMax)) / times) {
    return invalid_argument("character {}: expected at most {} characters once expanded, found more",
                            piece.front().position, kExpandedMax);
  }
  for (size_t i = 0; i < times; ++i) text.insert(text.end(), piece.begin(), piece.end());
  return ok_status();
}

// "(...)*3", where "..." is everything up to the first closing bracket.
StatusOr<Text> with_brackets_repeated(const Text& text) {
  Text result;
  for (size_t i = 0; i < text.size();) {
    size_t close = i + 1;
    while (close < text.size() && text[close].character != ')') ++close;
    const bool bracketed = text[i].character == '(' && close > i + 1;
    const auto repetition = bracketed ? repetition_at(text, close + 1) : std::nullopt;
    if (repetition) {
      const Text inner(text.begin() + static_cast<ptrdiff_t>(i) + 1,
                       text.begin() + static_cast<ptrdiff_t>(close));
      PENSTOCK_RETURN_IF_ERROR(append(result, inner, repetition->times));
      i = repetition->end;
    } else {
      result.push_back(text[i++]);
    }
  }
  return result;
}

// "t*3": one character, whichever it is.
StatusOr<Text> with_characters_repeated(const Text& text) {
  Text result;
  for (size_t i = 0; i < text.size();) {
    if (const auto repetition = repetition_at(text, i + 1)) {
      PENSTOCK_RETURN_IF_ERROR(append(result, {text[i]}, repetition->times));
      i = repetition->end;
    } else {
      result.push_back(text[i++]);
    }
  }
  return result;
}

Status unexpected(const Placed& placed) {
  const auto refuse = [&](const std::string& why) {
    const bool printable = placed.character > ' ' && placed.character <= '~';
    return invalid_argument("character {}: expected E, t, m, L or |, found {}{}", placed.position,
                            printable                 ? std::string(1, placed.character)
                            : placed.character == ' ' ? "a blank"
                                                      : "what is not ASCII or not printable",
                            why);
  };
  switch (placed.character) {
    case '(':
    case ')':
      return refuse(": brackets are followed by * and a number, and do not nest");
    case '*':
      return refuse(": it stands between what is repeated and a number");
    case 'e':
    case 'T':
    case 'M':
    case 'l':
      return refuse(": the letters' case matters");
    default:
      return refuse("");
  }
}

size_t count_of(const std::vector<LayoutItem>& stage, LayoutItem item) {
  return static_cast<size_t>(std::count(stage.begin(), stage.end(), item));
}

Status check_once(const Layout& layout, LayoutItem item, const char* place) {
  size_t count = 0;
  for (const auto& stage : layout) count += count_of(stage, item);
  if (count == 1) return ok_status();
  return invalid_argument("expected {} once, {}, found it {} times", static_cast<char>(item), place, count);
}

Status check_ends(const Layout& layout) {
  PENSTOCK_RETURN_IF_ERROR(check_once(layout, LayoutItem::Embedding, "first"));
  PENSTOCK_RETURN_IF_ERROR(check_once(layout, LayoutItem::Loss, "last"));
  const auto holds_items = [](const auto& stage) { return !stage.empty(); };
  const auto first = std::find_if(layout.begin(), layout.end(), holds_items);
  if (first->front() != LayoutItem::Embedding) {
    return invalid_argument("stage {}: expected E first, found {}", first - layout.begin(),
                            static_cast<char>(first->front()));
  }
  const auto last = std::find_if(layout.rbegin(), layout.rend(), holds_items);
  if (last->back() != LayoutItem::Loss) {
    return invalid_argument("stage {}: expected L last, found {}", layout.rend() - last - 1,
                            static_cast<char>(last->back()));
  }
  return ok_status();
}

Status check_layers(const Layout& layout, LayoutItem item, std::optional<int> expected, const char* what) {
  if (!expected) return ok_status();
  size_t count = 0;
  for (const auto& stage : layout) count += count_of(stage, item);
  if (count == static_cast<size_t>(*expected)) return ok_status();
  return invalid_argument("expected {} {} ({}), found {}", *expected, what, static_cast<char>(item), count);
}

Status check_multi_token_prediction(const Layout& layout, int ranks) {
  std::optional<size_t> stage_of_all;
  for (size_t stage = 0; stage < layout.size(); ++stage) {
    const auto first =
        std::find(layout[stage].begin(), layout[stage].end(), LayoutItem::MultiTokenPrediction);
    const auto behind = stage_of_all ? layout[stage].begin() : first;
    if (std::find(behind, layout[stage].end(), LayoutItem::Decoder) != layout[stage].end()) {
      return invalid_argument("stage {}: expected no t behind an m", stage);
    }
    if (first == layout[stage].end()) continue;
    if (stage_of_all) {
      return invalid_argument("stage {}: expected all m in one stage, found some in stage {} too", stage,
                              *stage_of_all);
    }
    stage_of_all = stage;
    const size_t last_of_rank =
        layout.size() - static_cast<size_t>(ranks) + stage % static_cast<size_t>(ranks);
    if (stage != last_of_rank) {
      return invalid_argument("stage {}: expected m in the last stage of its rank {}, which is stage {}",
                              stage, stage % static_cast<size_t>(ranks), last_of_rank);
    }
  }
  return ok_status();
}

std::string repeated_items(LayoutItem item, size_t count) {
  const char letter = static_cast<char>(item);
  return count < 4 ? std::string(count, letter) : fmt::format("{}*{}", letter, count);
}

std::string stage_text(const std::vector<LayoutItem>& stage) {
  std::string text;
  for (auto item = stage.begin(); item != stage.end();) {
    const auto end = std::find_if(item, stage.end(), [&](LayoutItem other) { return other != *item; });
    text += repeated_items(*item, static_cast<size_t>(end - item));
    item = end;
  }
  return text;
}

// A stage with its '|', `count` times over.
std::string repeated_stages(const std::string& stage, size_t count) {
  const std::string repeated = fmt::format("({})*{},", stage, count);
  if (count * stage.size() > repeated.size()) return repeated;
  std::string plain;
  for (size_t i = 0; i < count; ++i) plain += stage;
  return plain;
}

}  // namespace

StatusOr<Layout> parse_megatron_layout(std::string_view text) {
  if (text.size() > kExpandedMax) {
    return invalid_argument("expected at most {} characters, found {}", kExpandedMax, text.size());
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Text unbracketed, with_brackets_repeated(without_commas(text)));
  PENSTOCK_ASSIGN_OR_RETURN(const Text expanded, with_characters_repeated(unbracketed));
  Layout layout(1);
  for (const Placed& placed : expanded) {
    switch (placed.character) {
      case '|':
        layout.emplace_back();
        break;
      case 'E':
      case 't':
      case 'm':
      case 'L':
        layout.back().push_back(static_cast<LayoutItem>(placed.character));
        break;
      default:
        return unexpected(placed);
    }
  }
  return layout;
}

Status check_megatron_layout(const Layout& layout, const LayoutShape& shape) {
  if (shape.ranks < 1) return invalid_argument("expected at least 1 rank, found {}", shape.ranks);
  if (layout.empty() || layout.size() % static_cast<size_t>(shape.ranks) != 0) {
    return invalid_argument("expected a multiple of {} stages for {} ranks, found {}", shape.ranks,
                            shape.ranks, layout.size());
  }
  PENSTOCK_RETURN_IF_ERROR(check_ends(layout));
  PENSTOCK_RETURN_IF_ERROR(check_layers(layout, LayoutItem::Decoder, shape.num_layers, "decoder layers"));
  PENSTOCK_RETURN_IF_ERROR(check_layers(layout, LayoutItem::MultiTokenPrediction, shape.mtp_num_layers,
                                        "multi-token prediction layers"));
  return check_multi_token_prediction(layout, shape.ranks);
}

std::string megatron_layout(const Layout& layout) {
  std::string text;
  for (size_t stage = 0; stage + 1 < layout.size();) {
    size_t end = stage + 1;
    while (end + 1 < layout.size() && layout[end] == layout[stage]) ++end;
    text += repeated_stages(stage_text(layout[stage]) + "|", end - stage);
    stage = end;
  }
  if (!layout.empty()) text += stage_text(layout.back());
  return text;
}

}  // namespace penstock::plan
