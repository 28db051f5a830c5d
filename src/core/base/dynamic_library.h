// DynamicLibrary: a vendor's shared library, loaded at run time so that one binary also starts on machines without it.
// Opening one runs the vendor's code in this process: do it only where a crash or a hang does no harm.
#pragma once

#include <string>

#include "base/result.h"

namespace fulldeck::base {

// Movable owner of a dlopen handle; the destructor closes it. Not thread safe.
class DynamicLibrary {
 public:
  // `path` is a file name with slashes, or a bare name that the loader searches for. The error contains the loader's
  // message.
  static Result<DynamicLibrary> Open(const std::string& path);

  DynamicLibrary(DynamicLibrary&& other) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;
  ~DynamicLibrary();

  // The function named `symbol`, or nullptr. `Function` is a function type: Find<int(int*)>("f").
  template <typename Function>
  Function* Find(const char* symbol) const {
    return reinterpret_cast<Function*>(FindAddress(symbol));
  }

  const std::string& path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* FindAddress(const char* symbol) const;

  void* handle_ = nullptr;
  std::string path_;
};

}  // namespace fulldeck::base
