// The colors in which classes are shown: in masks, overlays, and the report. Pure.
#pragma once

#include <string>
#include <vector>

#include "report/run_report.h"

namespace fulldeck::report {

// One entry a class, in their order, with its name as it is. Classes of land cover with known names ("building",
// "Water", "low_vegetation") have the color that maps give them; all others get colors that are told apart, by their
// number, none of which a known class of the same list has. Up to 255 classes, no two have the same.
std::vector<LegendEntry> PaletteOf(const std::vector<std::string>& classes);

}  // namespace fulldeck::report
