#include "dataset/source.h"

#include "dataset/category_folders.h"
#include "dataset/mask_folders.h"
#include "dataset/synthetic.h"

namespace fulldeck::dataset {

base::Result<std::unique_ptr<Source>> OpenSource(const recipe::Data& data, Part part, std::uint64_t seed) {
  switch (data.kind) {
    case recipe::DataKind::kSynthetic:
      return OpenSynthetic(data, part, seed);
    case recipe::DataKind::kMmseg:
      return OpenMmseg(data, part);
    case recipe::DataKind::kLoveda:
      return OpenLoveda(data, part);
    case recipe::DataKind::kMmrs1m:
      return OpenMmrs1m(data, part);
    default:
      return OpenCategories(data, part);
  }
}

}  // namespace fulldeck::dataset
