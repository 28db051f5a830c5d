// Everything that differs between the torch minor versions that this library can be built for: 2.6 to 2.13. No other
// file depends on the version. `make compat` compiles the library's sources against the headers of several of them.
#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <string>

#define FULLDECK_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if !FULLDECK_TORCH_AT_LEAST(2, 6)
#error "fulldeck's c10d backend needs torch 2.6 or newer."
#endif

// Methods that later versions of c10d::Backend and c10d::Work added. With an older torch nothing calls them through the
// base class, and they are plain methods.
#if FULLDECK_TORCH_AT_LEAST(2, 7)
#define FULLDECK_OVERRIDE_SINCE_2_7 override
#else
#define FULLDECK_OVERRIDE_SINCE_2_7
#endif
#if FULLDECK_TORCH_AT_LEAST(2, 8)
#define FULLDECK_OVERRIDE_SINCE_2_8 override
#else
#define FULLDECK_OVERRIDE_SINCE_2_8
#endif

namespace fulldeck::torch_backend::minor {

#if FULLDECK_TORCH_AT_LEAST(2, 7)
using ErrorType = c10d::ErrorType;
#else
enum class ErrorType { SUCCESS = 0, TIMEOUT = 1, COMM_ERROR = 2, REMOTE_ERROR = 3 };
#endif

// Whether the caller waits for this call before it does anything else. If the options lack the field (all but four in
// 2.6 and 2.7), this is unknown, and the safe answer is no.
template <typename Options>
bool CallerWaits(const Options& options) {
  if constexpr (requires { options.asyncOp; }) {
    return !options.asyncOp;
  } else {
    return false;
  }
}

// The call's own timeout, or the group's.
template <typename Options>
std::chrono::milliseconds TimeoutOf(const Options& options, std::chrono::milliseconds of_group) {
  if constexpr (requires { options.timeout; }) {
    return options.timeout == c10d::kUnsetTimeout ? of_group : options.timeout;
  } else {
    return of_group;
  }
}

// The group's name from a backend's options; 2.6 and 2.7 do not have it.
template <typename Options>
void SetGroupName(Options& options, const std::string& name) {
  if constexpr (requires { options.group_name; }) options.group_name = name;
}
template <typename Options>
std::string GroupNameOf(const Options& options) {
  if constexpr (requires { options.group_name; }) {
    return options.group_name;
  } else {
    return {};
  }
}

inline std::string Lacking() {
  std::string lacking;
#if !FULLDECK_TORCH_AT_LEAST(2, 7)
  lacking += "DDP's buckets cannot live in shared memory, destroy_process_group() does not shut the backend down; ";
#endif
#if !FULLDECK_TORCH_AT_LEAST(2, 8)
  lacking +=
      "all_reduce, reduce, gather, all_to_all and barrier go through a queue even where the program waits for them, "
      "the "
      "time-out of a group cannot be changed; ";
#endif
  if (!lacking.empty()) lacking.erase(lacking.size() - 2);
  return lacking;
}

}  // namespace fulldeck::torch_backend::minor
