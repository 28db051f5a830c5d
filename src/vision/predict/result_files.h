// Writes the result files of a segmentation: NAME_mask.png (indices with a palette), NAME_overlay.png (the image with
// the classes on top), and for a TIFF file NAME_mask.tif with its georeference.
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

// Names in the output folder, derived from the image's name: two images with the same name get NAME and NAME-2, and no
// result file may be one of the images. Threads: one at a time.
class ResultNames {
 public:
  ResultNames(std::string folder, std::vector<std::string> images)
      : folder_(std::move(folder)), images_(std::move(images)) {}
  // An error if a result would overwrite an image.
  base::Result<ResultFiles> For(const std::string& image, bool is_tiff);

 private:
  std::string folder_;
  std::vector<std::string> images_;
  std::set<std::string> taken_;
};

// The image in 8 bits, blended half and half with the color of each pixel's class. Images with one or two bands are
// gray; otherwise the first three bands are red, green and blue. Values that are not 8-bit are stretched per band, from
// the 2nd to the 98th percentile.
imagery::Image8 Overlay(const dataset::SampleImage& image, const imagery::Mask& mask,
                        const std::vector<report::LegendEntry>& palette);

// Writes the files of `files`. `tags`: of the image, for the TIFF file.
base::Result<void> WriteResults(const ResultFiles& files, const dataset::SampleImage& image, const imagery::Mask& mask,
                                const std::vector<report::LegendEntry>& palette, const imagery::GeoTags& tags);

}  // namespace fulldeck::predict
