#include "dataset/source.h"

#include "dataset/category_folders.h"
#include "dataset/mask_folders.h"
#include "dataset/synthetic.h"

namespace fulldeck::dataset {

base::Result<std::unique_ptr<Source>> OpenSource(const model_spec::DataOptions& data, Split split, std::uint64_t seed) {
  switch (data.kind) {
    case model_spec::DataKind::kSynthetic:
      return OpenSynthetic(data, split, seed);
    case model_spec::DataKind::kMmseg:
      return OpenMmseg(data, split);
    case model_spec::DataKind::kLoveda:
      return OpenLoveda(data, split);
    case model_spec::DataKind::kMmrs1m:
      return OpenMmrs1m(data, split);
    default:
      return OpenCategories(data, split);
  }
}

}  // namespace fulldeck::dataset
