// Classification from folders: one folder a category.
#pragma once

#include <memory>

#include "dataset/source.h"
#include "config/recipe.h"

namespace fulldeck::dataset {

// ROOT/PART/CATEGORY/*.
base::Result<std::unique_ptr<Source>> OpenCategories(const config::Data& data, Part part);
// MMRS-1M: ROOT/classification/SET/PART/CATEGORY/*; the part for validation is "test" where there is no other. With
// several sets a category is SET/CATEGORY.
base::Result<std::unique_ptr<Source>> OpenMmrs1m(const config::Data& data, Part part);

}  // namespace fulldeck::dataset
