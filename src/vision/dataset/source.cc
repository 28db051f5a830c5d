#include "dataset/source.h"

#include "dataset/category_folders.h"
#include "dataset/mask_folders.h"
#include "dataset/synthetic.h"

namespace fulldeck::dataset {

base::Result<std::unique_ptr<Source>> OpenSource(const config::Data& data, Part part, std::uint64_t seed) {
  switch (data.kind) {
    case config::DataKind::kSynthetic:
      return OpenSynthetic(data, part, seed);
    case config::DataKind::kMmseg:
      return OpenMmseg(data, part);
    case config::DataKind::kLoveda:
      return OpenLoveda(data, part);
    case config::DataKind::kMmrs1m:
      return OpenMmrs1m(data, part);
    default:
      return OpenCategories(data, part);
  }
}

}  // namespace fulldeck::dataset
