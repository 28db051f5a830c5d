// CHECK: a broken invariant of ours ends the process, in every build, with the place and the reason on stderr.
// Not for bad input or a failing system call: those are a base::Result.
#pragma once

#include "base/check_failed.h"

#define CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::fulldeck::base::CheckFailed(#condition, __FILE__, __LINE__))
