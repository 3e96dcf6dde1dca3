// Bars one line high. Pure: width in columns in, text out.
#pragma once

#include <string>

#include "plan/render/glyphs.h"

namespace penstock::plan {

// How much is done, in brackets: "[=====>    ]". `fraction` is taken into 0..1; a width under 3 gives "".
std::string progress_bar(double fraction, int width, Glyphs glyphs = Glyphs::Ascii);

// How a rank spends its time, busy part first: "[######....]". Same rules.
std::string busy_bar(double busy_fraction, int width, Glyphs glyphs = Glyphs::Ascii);

// A measurement beside its plan, on a scale that ends at `largest`: "[######|## ]", where the mark stands at the plan.
// Same rules; a plan that is not above 0 has no mark.
std::string planned_bar(double measured, double planned, double largest, int width,
                        Glyphs glyphs = Glyphs::Ascii);

}  // namespace penstock::plan
