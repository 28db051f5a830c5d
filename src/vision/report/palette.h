// Colors of the classes in masks, overlays and the report. Pure.
#pragma once

#include <string>
#include <vector>

#include "report/run_report.h"

namespace fulldeck::report {

// One entry per class, in the given order, with the name unchanged. Known land-cover classes ("building", "Water",
// "low_vegetation") get their usual map colors. All others get distinguishable colors by their number; none of them
// equals the color of a known class in the same list. Up to 255 classes, all colors differ.
std::vector<LegendEntry> PaletteOf(const std::vector<std::string>& classes);

}  // namespace fulldeck::report
