// The port on which rank 0 will open its store, reserved from the moment it is chosen by a bound socket that never
// listens. The kernel does not assign it to a program that asks for any free port. Until the ranks start, no program
// can bind it, with any socket option. After LetStoreBind, programs that set SO_REUSEADDR can, because torch's store
// is one of them; programs without it still cannot. Once rank 0 listens, no other program can bind it. So a program
// of another user that knows the port and is faster than rank 0 can still take it: rank 0 then fails with EADDRINUSE.
//
// A second launcher could bind the port just as the store can. An abstract Unix socket name of this user in the same
// network namespace prevents that. The name only coordinates the launchers of one user: if another user holds it,
// MasterPort works without it.
#pragma once

#include <optional>
#include <string>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::net {

class MasterPort {
 public:
  // Any free port.
  static base::Result<MasterPort> Free();
  // This port. If it is in use, the error names the owner: pid, command, user, as far as they can be determined.
  static base::Result<MasterPort> Named(int port);

  int number() const { return number_; }

  // From now on a store may bind the port. Call it right before rank 0 starts.
  void LetStoreBind();

 private:
  int number_ = 0;
  base::UniqueFd v4_;
  base::UniqueFd v6_;    // if the machine has IPv6
  base::UniqueFd name_;  // abstract Unix socket; invalid if another user holds the name
};

}  // namespace fulldeck::net
