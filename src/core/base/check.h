// FULLDECK_CHECK: aborts the process, in every build, when one of fulldeck's own invariants is broken; prints the location
// and the condition on stderr. Not for invalid input or failing system calls: those return a base::Result.
#pragma once

namespace fulldeck::base {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace fulldeck::base

#define FULLDECK_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::fulldeck::base::CheckFailed(#condition, __FILE__, __LINE__))
