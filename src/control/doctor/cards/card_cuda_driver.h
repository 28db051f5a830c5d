// The subset of the CUDA driver's C interface that a probe needs, loaded at run time. Not thread safe.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/dynamic_library.h"
#include "base/result.h"

namespace fulldeck::doctor {

using CudaPointer = unsigned long long;

class CudaDriver {
 public:
  // Loads the first of `candidates` that loads, resolves its symbols and initializes it. The error names the missing
  // symbol or the driver's error. `nowhere` is set to true if no candidate exists.
  static base::Result<CudaDriver> Open(const std::vector<std::string>& candidates, bool* nowhere);

  // nullopt if `code` is success; otherwise "copying to the card: an illegal memory access was encountered
  // (CUDA_ERROR_ILLEGAL_ADDRESS, code 700)".
  std::optional<std::string> Failure(int code, const char* what) const;

  int version() const { return version_; }  // 13000 is 13.0
  std::string VersionText() const;

  // Declared and named as in cuda.h.
  // NOLINTBEGIN(readability-identifier-naming)
  int (*GetErrorString)(int, const char**) = nullptr;
  int (*GetErrorName)(int, const char**) = nullptr;
  int (*DeviceGetCount)(int*) = nullptr;
  int (*DeviceGet)(int*, int) = nullptr;
  int (*DeviceGetByPCIBusId)(int*, const char*) = nullptr;  // may be absent
  int (*DeviceGetName)(char*, int, int) = nullptr;
  int (*DeviceGetUuid)(unsigned char*, int) = nullptr;  // may be absent
  int (*DeviceGetAttribute)(int*, int, int) = nullptr;
  int (*CtxCreate)(void**, unsigned, int) = nullptr;
  int (*CtxDestroy)(void*) = nullptr;
  int (*CtxSynchronize)() = nullptr;
  int (*MemGetInfo)(std::size_t*, std::size_t*) = nullptr;
  int (*MemAlloc)(CudaPointer*, std::size_t) = nullptr;
  int (*MemFree)(CudaPointer) = nullptr;
  int (*MemAllocHost)(void**, std::size_t) = nullptr;
  int (*MemFreeHost)(void*) = nullptr;
  int (*MemcpyHtoD)(CudaPointer, const void*, std::size_t) = nullptr;
  int (*MemcpyDtoH)(void*, CudaPointer, std::size_t) = nullptr;
  int (*ModuleLoadData)(void**, const void*) = nullptr;
  int (*ModuleGetFunction)(void**, void*, const char*) = nullptr;
  int (*LaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                      void**) = nullptr;
  // NOLINTEND(readability-identifier-naming)

 private:
  explicit CudaDriver(base::DynamicLibrary library) : library_(std::move(library)) {}
  base::Result<void> LookUp();

  base::DynamicLibrary library_;
  int version_ = 0;
};

inline constexpr int kCudaOutOfMemory = 2;
inline constexpr int kCudaAttributeMultiprocessors = 16;
inline constexpr int kCudaAttributeEcc = 32;
inline constexpr int kCudaAttributeMajor = 75;
inline constexpr int kCudaAttributeMinor = 76;

}  // namespace fulldeck::doctor
