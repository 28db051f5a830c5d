// Segmentation from folders: images in one, masks in another, of the same names.
#pragma once

#include <memory>

#include "config/config.h"
#include "dataset/source.h"

namespace fulldeck::dataset {

// MMSegmentation: ROOT/img_dir/PART and ROOT/ann_dir/PART, also with folders below.
base::Result<std::unique_ptr<Source>> OpenMmseg(const config::Data& data, Split split);
// LoveDA: ROOT/PART/{Rural,Urban}/{images_png,masks_png}; 0 is no data, 1 … 7 are the classes.
base::Result<std::unique_ptr<Source>> OpenLoveda(const config::Data& data, Split split);

}  // namespace fulldeck::dataset
