// Segmentation datasets with images in one folder and masks of the same names in another.
#pragma once

#include <memory>

#include "dataset/source.h"
#include "model_spec/options.h"

namespace fulldeck::dataset {

// MMSegmentation: ROOT/img_dir/SPLIT and ROOT/ann_dir/SPLIT, including subfolders.
base::Result<std::unique_ptr<Source>> OpenMmseg(const model_spec::DataOptions& data, Split split);
// LoveDA: ROOT/SPLIT/{Rural,Urban}/{images_png,masks_png}; 0 is "no data", 1 … 7 are the classes.
base::Result<std::unique_ptr<Source>> OpenLoveda(const model_spec::DataOptions& data, Split split);

}  // namespace fulldeck::dataset
