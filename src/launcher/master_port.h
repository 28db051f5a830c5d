// The port on which rank 0 will open its store, held from the moment it is chosen: a bound socket that never listens.
// SO_REUSEADDR lets the store bind beside it, plain programs are refused, and the kernel hands it to nobody who asks
// for any free port.
//
// A second launcher would be let in just as the store is: a name in the same network namespace keeps it out.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace fulldeck::launcher {

class MasterPort {
 public:
  // A free port.
  static base::Result<MasterPort> Free();
  // That one. When it is taken the error says by whom: pid, command, user, as far as it can be told.
  static base::Result<MasterPort> Named(int port);

  int number() const { return number_; }

 private:
  int number_ = 0;
  base::UniqueFd v4_;
  base::UniqueFd v6_;    // where the host has IPv6
  base::UniqueFd name_;  // abstract Unix socket
};

}  // namespace fulldeck::launcher
