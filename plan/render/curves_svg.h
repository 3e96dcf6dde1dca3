// Measurements beside their plans as a picture: under one title each, a row of pairs of bars.
#pragma once

#include <string>
#include <vector>

namespace penstock::plan {

struct CurvePoint {
  std::string label;  // under the bars: "stage 3"
  double measured = 0;
  double planned = 0;         // 0: no bar
  std::string measured_text;  // over the bar: "12.3ms"
};

struct Curve {
  std::string title;
  std::string planned_name;  // of the second bar of each pair: "predicted"
  std::vector<CurvePoint> points;
};

// A whole SVG file, without scripts or outside references, one panel a curve. Text from outside is escaped. At most 256
// points of a curve are drawn; what is left out is said.
std::string curves_svg(const std::string& title, const std::vector<Curve>& curves);

}  // namespace penstock::plan
