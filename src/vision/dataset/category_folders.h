// Classification from folders: one folder a category.
#pragma once

#include <memory>

#include "config/config.h"
#include "dataset/source.h"

namespace fulldeck::dataset {

// ROOT/PART/CATEGORY/*.
base::Result<std::unique_ptr<Source>> OpenCategories(const config::Data& data, Split split);
// MMRS-1M: ROOT/classification/SET/PART/CATEGORY/*; the split for validation is "test" where there is no other. With
// several sets a category is SET/CATEGORY.
base::Result<std::unique_ptr<Source>> OpenMmrs1m(const config::Data& data, Split split);

}  // namespace fulldeck::dataset
