#include "bench/temporary_run_folder.h"

#include <cstdlib>
#include <filesystem>

#include "base/text.h"

namespace fulldeck::bench {

base::Result<TemporaryRunFolder> TemporaryRunFolder::Make(const base::Environment& environment) {
  const auto chosen = environment.Get("TMPDIR");
  std::string path = (chosen && !chosen->empty() ? *chosen : "/tmp") + "/fulldeck-bench-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return base::ErrnoError("cannot make a folder " + base::Printable(path));
  return TemporaryRunFolder(std::move(path));
}

TemporaryRunFolder::~TemporaryRunFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace fulldeck::bench
