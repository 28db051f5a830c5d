// For tests.
#pragma once

#include <string>

#include "fulldeck/error.h"

namespace fulldeck::dinov3 {

// The message of the Error that the call throws.
template <typename Callable>
std::string ErrorOf(const Callable& callable) {
  try {
    callable();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

}  // namespace fulldeck::dinov3
