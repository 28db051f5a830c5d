// Classification datasets with one folder per category.
#pragma once

#include <memory>

#include "dataset/source.h"
#include "model_spec/options.h"

namespace fulldeck::dataset {

// ROOT/SPLIT/CATEGORY/*.
base::Result<std::unique_ptr<Source>> OpenCategories(const model_spec::DataOptions& data, Split split);
// MMRS-1M: ROOT/classification/SET/SPLIT/CATEGORY/*; the validation split is "test" if there is no other. With several
// sets, a category is named SET/CATEGORY.
base::Result<std::unique_ptr<Source>> OpenMmrs1m(const model_spec::DataOptions& data, Split split);

}  // namespace fulldeck::dataset
