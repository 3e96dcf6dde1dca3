#include "plan/render/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <vector>

#include "plan/render/glyphs.h"
#include "plan/render/held.h"
#include "plan/render/human.h"

namespace penstock::plan {
namespace {

// Paul Tol's "light" colours, which stay apart under every kind of colour blindness; kinds in the order of
// ActionKind.
struct Colour {
  int red, green, blue;
};
constexpr std::array kColours = {Colour{0x77, 0xAA, 0xDD}, Colour{0xEE, 0x88, 0x66}, Colour{0xEE, 0xDD, 0x88},
                                 Colour{0x44, 0xBB, 0x99}};
constexpr std::array kKindNames = {"forward", "backward", "input gradient", "weight gradient"};
constexpr size_t kKinds = kColours.size();

constexpr int kShades = 4;  // a rank's stages, from full colour to the palest
constexpr double kPalest = 0.62;

std::string hex(const Colour& colour, double paleness) {
  const auto paler = [&](int part) { return static_cast<int>(std::lround(part + (255 - part) * paleness)); };
  return fmt::format("#{:02X}{:02X}{:02X}", paler(colour.red), paler(colour.green), paler(colour.blue));
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// A length with at most one decimal.
std::string px(double value) {
  const double rounded = std::round(value * 10) / 10;
  return rounded == std::floor(rounded) ? fmt::format("{:.0f}", rounded) : fmt::format("{:.1f}", rounded);
}

constexpr double kLeft = 84;
constexpr double kRight = 74;
constexpr double kTop = 104;
constexpr double kCharacterWidth = 6.4;  // of a label's font
constexpr double kNarrowest = 860;       // of the lanes
constexpr double kWidest = 3200;

// What is drawn, and where.
struct Frame {
  size_t ranks = 0;
  Ticks begin = 0;
  Ticks end = 0;
  double px_per_tick = 1;
  double lane_height = 34;
  double strip_height = 24;
  double gap = 14;
  int64_t actions = 0;        // of the program
  int64_t actions_drawn = 0;  // that start before the cut
  std::optional<Ticks> cut;   // where the drawing ends before the schedule does

  double width() const { return static_cast<double>(end - begin) * px_per_tick; }
  double x(Ticks time) const { return kLeft + static_cast<double>(time - begin) * px_per_tick; }
  double pitch() const { return lane_height + strip_height + gap; }
  double lane_top(size_t rank) const { return kTop + static_cast<double>(rank) * pitch(); }
  double strip_bottom(size_t rank) const { return lane_top(rank) + lane_height + strip_height; }
  double axis_y() const { return lane_top(ranks) - gap + 8; }
};

// Starts of all actions of the lanes that are drawn, in order.
std::vector<Ticks> starts_of(const Simulation& simulation, size_t ranks) {
  std::vector<Ticks> starts;
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (const TimedAction& timed : simulation.ranks[rank].actions) starts.push_back(timed.start);
  }
  std::sort(starts.begin(), starts.end());
  return starts;
}

Frame frame_of(const Simulation& simulation, const SvgStyle& style) {
  Frame frame;
  frame.ranks = std::min(simulation.ranks.size(), static_cast<size_t>(std::max(style.ranks_max, 1)));
  const std::vector<Ticks> starts = starts_of(simulation, frame.ranks);
  for (const RankTimeline& rank : simulation.ranks)
    frame.actions += static_cast<int64_t>(rank.actions.size());
  if (starts.empty()) return frame;
  const auto drawn_max = static_cast<size_t>(std::max(style.actions_max, 1));
  if (starts.size() > drawn_max) frame.cut = starts[drawn_max];
  frame.begin = starts.front();
  Ticks shortest = std::numeric_limits<Ticks>::max();
  for (size_t r = 0; r < frame.ranks; ++r) {
    for (const TimedAction& timed : simulation.ranks[r].actions) {
      if (frame.cut && timed.start >= *frame.cut) break;
      ++frame.actions_drawn;
      frame.end = std::max(frame.end, timed.end);
      if (timed.end > timed.start) shortest = std::min(shortest, timed.end - timed.start);
    }
  }
  if (!frame.cut) frame.end = std::max(frame.end, frame.begin + simulation.makespan);
  const auto total = static_cast<double>(std::max<Ticks>(frame.end - frame.begin, 1));
  const double readable =
      26.0 / static_cast<double>(std::max<Ticks>(std::min(shortest, frame.end - frame.begin), 1));
  frame.px_per_tick = std::clamp(readable, kNarrowest / total, std::max(kWidest / total, kNarrowest / total));
  if (frame.ranks > 16) {
    frame.lane_height = 22;
    frame.strip_height = 14;
    frame.gap = 8;
  }
  return frame;
}

// Whole names of actions where every cell has room for its own, else microbatches where a cell has room,
// which is what papers write.
bool names_fit(const Simulation& simulation, const Frame& frame) {
  for (size_t r = 0; r < frame.ranks; ++r) {
    for (const TimedAction& timed : simulation.ranks[r].actions) {
      if (frame.cut && timed.start >= *frame.cut) break;
      const size_t length =
          std::max(to_string(timed.action.work).size(),
                   timed.action.overlapped ? to_string(*timed.action.overlapped).size() : 0);
      const double width = static_cast<double>(timed.end - timed.start) * frame.px_per_tick;
      if (width < static_cast<double>(length) * kCharacterWidth + 6) return false;
    }
  }
  return true;
}

class Drawing {
 public:
  Drawing(const ComputeProgram& program, const Simulation& simulation, const SvgStyle& style)
      : program_(program),
        simulation_(simulation),
        style_(style),
        frame_(frame_of(simulation, style)),
        named_(names_fit(simulation, frame_)) {
    for (size_t rank = 0; rank < frame_.ranks; ++rank) {
      held_.push_back(held_forwards(simulation.ranks[rank], program.forward_only));
      highest_ = std::max(highest_, static_cast<double>(peak_of(held_.back())));
      note_kinds(simulation.ranks[rank]);
    }
    highest_ = std::max(highest_, style.held_budget);
  }

  std::string text() {
    for (size_t rank = 0; rank < frame_.ranks; ++rank) draw_rank(rank);
    draw_axis();
    draw_notes();
    const double width = kLeft + std::max(frame_.width(), kNarrowest) + kRight;
    const double height = frame_.axis_y() + 48 + 16 * static_cast<double>(notes_.size());
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
               "font-family=\"Helvetica, Arial, sans-serif\" role=\"img\">\n<title>{2}</title>\n",
               px(width), px(height), escaped(title())) +
           stylesheet() + "<rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n" + head() + body_ +
           "</svg>\n";
  }

 private:
  template <typename... Args>
  void draw(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
  }

  void note_kinds(const RankTimeline& rank) {
    for (const TimedAction& timed : rank.actions) {
      kinds_[static_cast<size_t>(timed.action.work.kind)] = true;
      if (timed.action.overlapped) {
        kinds_[static_cast<size_t>(timed.action.overlapped->kind)] = true;
        has_pairs_ = true;
      }
    }
  }

  std::string title() const {
    return fmt::format("{}: {}, {}, {}", program_.schedule, counted(program_.ranks, "rank"),
                       counted(program_.stages(), "stage"), counted(program_.microbatches, "microbatch"));
  }

  static std::string stylesheet() {
    std::string text = "<style>";
    for (size_t kind = 0; kind < kKinds; ++kind) {
      for (int shade = 0; shade < kShades; ++shade) {
        text += fmt::format(".{}{}{{fill:{}}}", "fbiw"[kind], shade,
                            hex(kColours[kind], kPalest * shade / (kShades - 1)));
      }
    }
    return text +
           "text{fill:#1F2933}.n{font-size:11px;text-anchor:middle}.s{font-size:9.5px;text-anchor:middle}"
           ".r{font-size:13px;text-anchor:end}.t{font-size:20px;font-weight:600}.u{font-size:13px;fill:#52606D}"
           ".k{font-size:12px}.a{font-size:11px;fill:#52606D}.m{text-anchor:middle}"
           ".idle{fill:#E4E7EB}.held{fill:#C3CBD5;stroke:#7B8794;stroke-width:1}"
           ".budget{stroke:#AA3377;stroke-width:1.5;stroke-dasharray:5 3}.axis{stroke:#9AA5B1;stroke-width:1}"
           ".c rect{stroke:#FFFFFF;stroke-width:.8}</style>\n";
  }

  // --- title, subtitle and legend.

  std::string head() const {
    std::string text =
        fmt::format("<text class=\"t\" x=\"{}\" y=\"36\">{}</text>\n", px(kLeft), escaped(title()));
    text +=
        fmt::format("<text class=\"u\" x=\"{}\" y=\"57\">{}</text>\n", px(kLeft), escaped(style_.subtitle));
    double x = kLeft;
    const auto add = [&](const std::string& swatch, const std::string& name) {
      const double before = swatch.empty() ? 0 : 24;
      text += fmt::format(
          "<g transform=\"translate({},73)\">{}</g><text class=\"k\" x=\"{}\" y=\"84\">{}</text>\n", px(x),
          swatch, px(x + before), escaped(name));
      x += before + 6.2 * static_cast<double>(name.size()) + 18;
    };
    const auto box = [](const std::string& colour) {
      return fmt::format("<rect class=\"{}\" width=\"18\" height=\"14\" rx=\"2\"/>", colour);
    };
    for (size_t kind = 0; kind < kKinds; ++kind) {
      if (kinds_[kind])
        add(box(fmt::format("{}0", "fbiw"[kind])), fmt::format("{} {}", "FBIW"[kind], kKindNames[kind]));
    }
    if (has_pairs_)
      add("<rect class=\"f0\" width=\"18\" height=\"7\"/><rect class=\"b0\" y=\"7\" width=\"18\" height=\"7\"/>",
          "overlapped pair");
    add(box("idle"), "idle");
    if (program_.stages_per_rank > 1 || program_.has_replicas()) {
      add("<rect class=\"f0\" width=\"9\" height=\"14\"/><rect class=\"f3\" x=\"9\" width=\"9\" height=\"14\"/>",
          "lighter: later stage of the rank");
    }
    add("<path class=\"held\" d=\"M0 14V8H9V3H18V14Z\"/>", "forwards held, until B or W");
    add("", named_ ? "cells: stage, kind, microbatch" : "numbers: microbatches");
    if (style_.held_budget > 0) add("<path class=\"budget\" d=\"M0 7H18\"/>", style_.held_budget_name);
    return text;
  }

  // --- a rank: idle ground, cells, and the strip of what it holds.

  void draw_rank(size_t rank) {
    const double top = frame_.lane_top(rank);
    draw("<text class=\"r\" x=\"{}\" y=\"{}\">rank {}</text>\n", px(kLeft - 12),
         px(top + frame_.lane_height / 2 + 4.5), rank);
    draw("<rect class=\"idle\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n<g class=\"c\">", px(kLeft),
         px(top), px(frame_.width()), px(frame_.lane_height));
    const std::map<StageIndex, int> shades = shades_of(simulation_.ranks[rank]);
    for (const TimedAction& timed : simulation_.ranks[rank].actions) {
      if (frame_.cut && timed.start >= *frame_.cut) break;
      draw_action(timed, top, shades);
    }
    draw("</g>\n");
    draw_held(rank);
  }

  // The rank's stages, spread over the shades.
  static std::map<StageIndex, int> shades_of(const RankTimeline& rank) {
    std::map<StageIndex, int> shades;
    for (const TimedAction& timed : rank.actions) {
      shades[timed.action.work.stage] = 0;
      if (timed.action.overlapped) shades[timed.action.overlapped->stage] = 0;
    }
    const int last = std::max(static_cast<int>(shades.size()) - 1, 1);
    int place = 0;
    for (auto& [stage, shade] : shades) shade = (kShades - 1) * place++ / last;
    return shades;
  }

  void draw_action(const TimedAction& timed, double top, const std::map<StageIndex, int>& shades) {
    const double x = frame_.x(timed.start);
    const double width = static_cast<double>(timed.end - timed.start) * frame_.px_per_tick;
    const std::optional<Work>& second = timed.action.overlapped;
    const double height = second ? frame_.lane_height / 2 : frame_.lane_height;
    const auto half = [&](const Work& work, double y) {
      draw("<rect class=\"{}{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
           "fbiw"[static_cast<size_t>(work.kind)], shades.at(work.stage), px(x), px(y), px(width),
           px(height));
      const std::string label = named_ ? to_string(work) : fmt::format("{}", work.microbatch.value);
      if (static_cast<double>(label.size()) * kCharacterWidth + 2 > width) return;
      draw("<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>", second ? "s" : "n", px(x + width / 2),
           px(y + height / 2 + (second ? 3.4 : 4)), label);
    };
    half(timed.action.work, top);
    if (second) half(*second, top + height);
  }

  void draw_held(size_t rank) {
    const double bottom = frame_.strip_bottom(rank);
    const double per_forward = (frame_.strip_height - 3) / std::max(highest_, 1.0);
    const Ticks end = frame_.end;
    draw("<path class=\"held\" d=\"M{} {}", px(kLeft), px(bottom));
    for (const HeldStep& step : held_[rank]) {
      if (step.time >= end) break;
      draw("H{}V{}", px(frame_.x(step.time)), px(bottom - step.held * per_forward));
    }
    draw("H{}V{}Z\"/>\n", px(frame_.x(end)), px(bottom));
    if (style_.held_budget > 0) {
      const double y = bottom - style_.held_budget * per_forward;
      draw("<path class=\"budget\" d=\"M{} {}H{}\"/>\n", px(kLeft), px(y), px(frame_.x(end)));
    }
    draw("<text class=\"a\" x=\"{}\" y=\"{}\">peak {}</text>\n", px(frame_.x(end) + 10),
         px(bottom - frame_.strip_height / 2 + 4), peak_of(held_[rank]));
  }

  // --- time, and what is not drawn.

  // 1, 2 or 5 times a power of ten, so that about twelve marks fit.
  Ticks mark_distance() const {
    const Ticks span = std::max<Ticks>(frame_.end - frame_.begin, 1);
    Ticks distance = 1;
    for (int i = 0; span / distance > 14; ++i) {
      const Ticks factor = i % 3 == 1 ? 5 : 2;  // 1 2 5 10 20 50: by 2, 2.5, 2
      distance = i % 3 == 1 ? distance / 2 * factor : distance * factor;
    }
    return distance;
  }

  void draw_axis() {
    const double y = frame_.axis_y();
    draw("<path class=\"axis\" d=\"M{} {}H{}\"/>", px(kLeft), px(y), px(frame_.x(frame_.end)));
    const Ticks distance = mark_distance();
    for (Ticks time = 0; time <= frame_.end - frame_.begin; time += distance) {
      const double x = frame_.x(frame_.begin + time);
      draw("<path class=\"axis\" d=\"M{} {}v5\"/><text class=\"a m\" x=\"{}\" y=\"{}\">{}</text>", px(x),
           px(y), px(x), px(y + 18), style_.scale.to_text(time));
    }
    draw("\n<text class=\"a\" x=\"{}\" y=\"{}\">time</text>\n", px(frame_.x(frame_.end) + 10), px(y + 4));
  }

  void draw_notes() {
    if (frame_.actions == 0) notes_.emplace_back("There is no action to draw.");
    const size_t ranks = simulation_.ranks.size();
    if (frame_.ranks < ranks) {
      notes_.push_back(frame_.ranks + 1 == ranks
                           ? fmt::format("Left out: rank {}.", frame_.ranks)
                           : fmt::format("Left out: ranks {} to {}.", frame_.ranks, ranks - 1));
    }
    if (frame_.cut) {
      notes_.push_back(fmt::format("Left out: what starts at {} or later; {} of {} are drawn.",
                                   style_.scale.to_text(*frame_.cut - frame_.begin), frame_.actions_drawn,
                                   counted(frame_.actions, "action")));
    }
    double y = frame_.axis_y() + 40;
    for (const std::string& note : notes_) {
      draw("<text class=\"a\" x=\"{}\" y=\"{}\">{}</text>\n", px(kLeft), px(y), escaped(note));
      y += 16;
    }
  }

  const ComputeProgram& program_;
  const Simulation& simulation_;
  const SvgStyle& style_;
  Frame frame_;
  bool named_;
  std::vector<std::vector<HeldStep>> held_;  // [rank]
  double highest_ = 1;                       // what the strips are scaled to
  std::array<bool, kKinds> kinds_{};         // that occur
  bool has_pairs_ = false;
  std::vector<std::string> notes_;
  std::string body_;
};

}  // namespace

std::string timeline_svg(const ComputeProgram& program, const Simulation& simulation, const SvgStyle& style) {
  return Drawing(program, simulation, style).text();
}

}  // namespace penstock::plan
