#include "base/result.h"

#include <cerrno>
#include <system_error>

namespace fulldeck::base {

Error ErrnoError(std::string_view what) {
  return ErrnoError(what, errno);
}

Error ErrnoError(std::string_view what, int error_number) {
  return Error{std::string(what) + ": " + std::generic_category().message(error_number), error_number};
}

}  // namespace fulldeck::base
