// How a broken invariant ends the process, for headers: the macro CHECK (base/check.h) has a namesake in torch, and so
// belongs into .cc files.
#pragma once

namespace fulldeck::base {

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace fulldeck::base
