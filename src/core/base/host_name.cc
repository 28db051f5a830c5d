#include "base/host_name.h"

#include <unistd.h>

#include <array>

#include "base/text.h"

namespace fulldeck::base {

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? Printable(name.data()) : "";
}

}  // namespace fulldeck::base
