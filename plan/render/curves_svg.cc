#include "plan/render/curves_svg.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/render/glyphs.h"

namespace penstock::plan {
namespace {

constexpr size_t kPointsMax = 256;
constexpr double kLeft = 24;
constexpr double kTop = 56;
constexpr double kPanel = 200;   // height of a panel with its title and labels
constexpr double kBarsTop = 44;  // in a panel
constexpr double kBarsHeight = 116;
constexpr double kPitch = 62;  // of a pair of bars
constexpr double kBar = 20;
constexpr const char* kMeasured = "#77AADD";  // of Paul Tol's "light" colours, as timelines have them
constexpr const char* kPlanned = "#BBBBBB";
constexpr const char* kSticksOut = "#EE8866";
constexpr double kAboveThePlan = 1.05;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : printable(text)) {
    result += c == '&'   ? "&amp;"
              : c == '<' ? "&lt;"
              : c == '>' ? "&gt;"
              : c == '"' ? "&quot;"
                         : std::string(1, c);
  }
  return result;
}

std::string text_at(double x, double y, const std::string& text, const char* anchor = "start",
                    int size = 11) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y,
                     size, anchor, escaped(text));
}

std::string bar_at(double x, double bottom, double height, const char* colour) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x,
                     bottom - height, kBar, height, colour);
}

double largest_of(const Curve& curve) {
  double largest = 0;
  for (const CurvePoint& point : curve.points) largest = std::max({largest, point.measured, point.planned});
  return largest;
}

std::string panel(const Curve& curve, double top) {
  const double bottom = top + kBarsTop + kBarsHeight;
  const double largest = largest_of(curve);
  const auto height = [&](double value) { return largest > 0 ? kBarsHeight * value / largest : 0; };
  std::string svg =
      text_at(kLeft, top + 14, fmt::format("{}: measured, beside it {}", curve.title, curve.planned_name),
              "start", 13);
  const size_t shown = std::min(curve.points.size(), kPointsMax);
  for (size_t i = 0; i < shown; ++i) {
    const CurvePoint& point = curve.points[i];
    const double x = kLeft + kPitch * static_cast<double>(i);
    const bool sticks_out = point.planned > 0 && point.measured > kAboveThePlan * point.planned;
    svg += bar_at(x, bottom, height(point.measured), sticks_out ? kSticksOut : kMeasured);
    if (point.planned > 0) svg += bar_at(x + kBar + 2, bottom, height(point.planned), kPlanned);
    svg += text_at(x + kBar, bottom - height(std::max(point.measured, point.planned)) - 4,
                   point.measured_text, "middle", 10);
    svg += text_at(x + kBar, bottom + 14, point.label, "middle", 10);
  }
  if (shown < curve.points.size())
    svg += text_at(kLeft, bottom + 28, fmt::format("{} more are not drawn", curve.points.size() - shown));
  return svg;
}

}  // namespace

std::string curves_svg(const std::string& title, const std::vector<Curve>& curves) {
  size_t points = 10;
  for (const Curve& curve : curves) points = std::max(points, std::min(curve.points.size(), kPointsMax));
  const double width = 2 * kLeft + kPitch * static_cast<double>(points);
  const double height = kTop + kPanel * static_cast<double>(curves.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height);
  svg += text_at(kLeft, 30, title, "start", 16);
  for (size_t i = 0; i < curves.size(); ++i) svg += panel(curves[i], kTop + kPanel * static_cast<double>(i));
  return svg + "</svg>\n";
}

}  // namespace penstock::plan
