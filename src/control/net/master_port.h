// The port on which rank 0 will open its store, held from the moment it is chosen: a bound socket that never listens.
// The kernel gives it to nobody who asks for any free port. Until the ranks start nobody can bind it, whatever the
// options; from then on programs with SO_REUSEADDR can, because the store of torch is one of them and binds by itself,
// and plain ones still cannot. Once rank 0 listens nobody else can. So a program of another user that knows the port
// and is faster than rank 0 can still take it: rank 0 then fails with EADDRINUSE.
//
// A second launcher would be let in just as the store is: a name of this user in the same network namespace keeps it
// out. The name is a courtesy among the launchers of one user: one that a stranger took is done without.
#pragma once

#include <optional>
#include <string>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace fulldeck::net {

class MasterPort {
 public:
  // A free port.
  static base::Result<MasterPort> Free();
  // That one. When it is taken the error says by whom: pid, command, user, as far as it can be told.
  static base::Result<MasterPort> Named(int port);

  int number() const { return number_; }

  // From now on a store may bind the port: right before rank 0 starts.
  void LetStoreBind();

 private:
  int number_ = 0;
  base::UniqueFd v4_;
  base::UniqueFd v6_;    // where the host has IPv6
  base::UniqueFd name_;  // abstract Unix socket; invalid: a stranger has the name
};

}  // namespace fulldeck::net
