#include "dataset/source.h"

#include "dataset/category_folders.h"
#include "dataset/mask_folders.h"
#include "dataset/synthetic.h"

namespace fulldeck::dataset {

base::Result<std::unique_ptr<Source>> OpenSource(const config::Data& data, Split split, std::uint64_t seed) {
  switch (data.kind) {
    case config::DataKind::kSynthetic:
      return OpenSynthetic(data, split, seed);
    case config::DataKind::kMmseg:
      return OpenMmseg(data, split);
    case config::DataKind::kLoveda:
      return OpenLoveda(data, split);
    case config::DataKind::kMmrs1m:
      return OpenMmrs1m(data, split);
    default:
      return OpenCategories(data, split);
  }
}

}  // namespace fulldeck::dataset
