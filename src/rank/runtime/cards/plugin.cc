#include "runtime/cards/plugin.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <unistd.h>

#include <mutex>
#include <set>

#include "base/text.h"
#include "fulldeck/error.h"

namespace fulldeck::runtime {
namespace {

std::string LoaderError() {
  const char* text = dlerror();
  return base::Printable(text == nullptr ? "the loader says no reason" : text);
}

// The folder of the library or program that contains this address, with a trailing slash.
std::string FolderOf(const void* address) {
  Dl_info info = {};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return {};
  const std::string path = info.dli_fname;
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

}  // namespace

void LoadTorchPlugin(const std::string& path) {
  static std::mutex mutex;
  static std::set<std::string> loaded;
  const std::lock_guard lock(mutex);
  if (loaded.count(path) != 0) return;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw Error("the torch plugin " + base::Printable(path) + " cannot be loaded: " + LoaderError() +
                ". Check FULLDECK_TORCH_PLUGIN, and that the library was built for this torch.");
  }
  if (auto* init = reinterpret_cast<int (*)()>(dlsym(library, "fulldeck_torch_plugin_init"))) {
    const int code = init();
    if (code != 0) {
      auto* error = reinterpret_cast<const char* (*)()>(dlsym(library, "fulldeck_torch_plugin_error"));
      const char* text = error == nullptr ? nullptr : error();
      throw Error("the torch plugin " + base::Printable(path) + " cannot work here: " +
                  (text == nullptr ? "it says no reason (code " + std::to_string(code) + ")" : base::Printable(text)));
    }
  }
  loaded.insert(path);
}

std::string LibraryBeside(const std::string& name) {
  const std::string folder = FolderOf(reinterpret_cast<const void*>(&LibraryBeside));
  // A program that links this code statically is next to lib/, not in it.
  for (const char* const from_there : {"", "../lib/"}) {
    if (std::string path = folder + from_there + name; access(path.c_str(), F_OK) == 0) return path;
  }
  return {};
}

std::string SimulatedCardsPlugin() {
  constexpr const char* kName = "libfulldeck_sim.so";
  const std::string found = LibraryBeside(kName);
  return found.empty() ? FolderOf(reinterpret_cast<const void*>(&LibraryBeside)) + kName : found;
}

bool LoadLibraryOfTorch(const char* name, std::string* reason) {
  const std::string path = FolderOf(reinterpret_cast<const void*>(&at::set_num_threads)) + name;
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) != nullptr) return true;
  *reason = LoaderError();
  return false;
}

}  // namespace fulldeck::runtime
