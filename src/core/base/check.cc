#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace fulldeck::base {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "fulldeck: internal error at %s:%d: '%s' does not hold. Please report it with this line.\n",
               file, line, condition);
  std::abort();
}

}  // namespace fulldeck::base
