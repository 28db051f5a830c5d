// FULLDECK_CHECK: a broken invariant ends the process, in every build, with the place and the reason on stderr.
// Not for bad input or a failing system call: those are a base::Result.
#pragma once

namespace fulldeck::base {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace fulldeck::base

#define FULLDECK_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::fulldeck::base::CheckFailed(#condition, __FILE__, __LINE__))
