// The files that a prediction of classes leaves: NAME_mask.png (indices with a palette), NAME_overlay.png (the image
// with the classes laid over it), and for a TIFF file NAME_mask.tif with the tags that say where it lies.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "dataset/source.h"
#include "imagery/files.h"
#include "report/run_report.h"

namespace fulldeck::predict {

struct ResultFiles {
  std::string mask, overlay;
  std::optional<std::string> tiff;
};

// Names in the output folder, made of the image's own: two images of one name get NAME and NAME-2, and none of the
// files of the results may be one of the images. Threads: one at a time.
class ResultNames {
 public:
  ResultNames(std::string folder, std::vector<std::string> images)
      : folder_(std::move(folder)), images_(std::move(images)) {}
  // An error where a result would overwrite an image.
  base::Result<ResultFiles> For(const std::string& image, bool is_tiff);

 private:
  std::string folder_;
  std::vector<std::string> images_;
  std::set<std::string> taken_;
};

// The image in eight bits with half of each pixel in the color of its class. Images of one or two bands are gray, of
// three and more the first three are red, green and blue. What is not 8-bit is stretched from its 2nd to its 98th
// percentile, band by band.
imagery::Image8 Overlay(const dataset::SampleImage& image, const imagery::Mask& mask,
                        const std::vector<report::LegendEntry>& palette);

// Writes what the names ask for. `tags`: of the image, for the TIFF file.
base::Result<void> WriteResults(const ResultFiles& files, const dataset::SampleImage& image, const imagery::Mask& mask,
                                const std::vector<report::LegendEntry>& palette, const imagery::GeoTags& tags);

}  // namespace fulldeck::predict
