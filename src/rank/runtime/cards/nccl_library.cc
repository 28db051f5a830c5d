#include "runtime/cards/nccl_library.h"

#include <dlfcn.h>

#include "base/check.h"
#include "base/text.h"
#include "runtime/cards/plugin.h"

namespace fulldeck::runtime {
namespace {

using Make = void (*)(const NcclRequest&, c10::intrusive_ptr<c10d::Backend>&);

struct Library {
  Make make = nullptr;
  std::string lacks;
};

Library Load() {
  const std::string path = LibraryBeside("libfulldeck_nccl.so");
  if (path.empty())
    return {nullptr, "this build has no libfulldeck_nccl.so (the headers of CUDA or NCCL were missing)"};
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {nullptr, "libfulldeck_nccl.so cannot be loaded: " + base::Printable(dlerror())};
  const auto make = reinterpret_cast<Make>(dlsym(library, "fulldeck_make_nccl"));
  if (make == nullptr) return {nullptr, "libfulldeck_nccl.so is not of this version"};
  return {make, {}};
}

const Library& TheLibrary() {
  static const Library library = Load();
  return library;
}

}  // namespace

std::string WhyNoNcclLibrary() {
  return TheLibrary().lacks;
}

c10::intrusive_ptr<c10d::Backend> MakeNccl(const NcclRequest& request) {
  if (TheLibrary().make == nullptr) base::CheckFailed("the library of NCCL is loaded", __FILE__, __LINE__);
  c10::intrusive_ptr<c10d::Backend> made;
  TheLibrary().make(request, made);
  return made;
}

}  // namespace fulldeck::runtime
